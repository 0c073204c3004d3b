"""The README's first command does what the README says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import processes
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_ends_with_its_three_verdicts(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "demo.py", "--out", tmp_path]
    processes.run(command)
    rows = json.loads((tmp_path / "results.json").read_text())["verdicts"]
    assert {row["checkpoint"]: row["passed"] for row in rows} == {
        "two-room-base": False,
        "two-room-augmented": True,
        "two-room-collapsed": False,
    }
    assert (tmp_path / "verdicts.png").stat().st_size > 10_000
