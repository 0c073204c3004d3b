"""The README's first command does what the README says."""

import json
import re
import sys
from pathlib import Path

import processes
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# What the first page calls the demo's verdicts, in its order.
CHECKPOINTS = ("two-room-base", "two-room-augmented", "two-room-collapsed", "two-room-augmented")


def test_the_demo_ends_with_the_verdicts_of_the_first_page(tmp_path: Path) -> None:
    """One fails surely, one passes surely, the trap is found, and few anchors do not decide."""
    command = [sys.executable, ROOT / "examples" / "demo.py", "--out", tmp_path]
    printed = " ".join(processes.run(command, seconds=600).stdout.split())
    rows = json.loads((tmp_path / "results.json").read_text())["verdicts"]
    page = (ROOT / "README.md").read_text()
    written = re.findall(
        r"^\| trained [^|]* \| (passes|fails)[^|]* \| (\w+) \|$", page, re.MULTILINE
    )
    assert [row["checkpoint"] for row in rows] == list(CHECKPOINTS)
    assert written == [
        (
            "passes" if row["passed"] else "fails",
            "undecided" if row["sure"] == "undecided" else "yes",
        )
        for row in rows
    ]
    assert [row["sure"] for row in rows] == ["failed", "passed", "failed", "undecided"]
    assert (rows[3]["anchors"], rows[1]["anchors"]) == (25, 400)  # "25 anchors instead of 400"
    assert "The second lesson: few anchors do not decide." in printed
    assert "The last one is the trap." in printed
    assert (tmp_path / "verdicts.png").stat().st_size > 10_000
