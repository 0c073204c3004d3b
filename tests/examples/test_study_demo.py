"""The demo of studies, one of them, as its reader runs it."""

import sys
from pathlib import Path

import processes
import pytest
from example_scripts import EXAMPLES

pytestmark = pytest.mark.slow


def test_a_study_is_measured_and_verified(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "study_demo.py", "--only", "horizons"]
    shown = processes.run([*command, "--out", tmp_path]).stdout
    assert (tmp_path / "horizons" / "study.json").exists()
    assert "horizons: at every horizon and quantile at most" in shown
    assert str(tmp_path) in shown
    assert "H8 q90" in (tmp_path / "horizons.txt").read_text()
    assert "H8 q90" not in shown
