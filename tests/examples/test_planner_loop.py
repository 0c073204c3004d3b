"""The planner loop, run as its reader runs it: a server of its own and a table at the end."""

import os
import sys

import processes
import pytest
from example_scripts import EXAMPLES

pytestmark = pytest.mark.slow


def test_the_loop_ends_with_a_row_per_checkpoint_and_planner() -> None:
    command = [sys.executable, EXAMPLES / "planner_loop.py", "--episodes", "1", "--sigma", "0"]
    environment = {**os.environ, "COLUMNS": "80"}
    shown = processes.run(command, env=environment)
    assert "…" not in shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines() if " asks  " in line]
    assert [" ".join(row[:-7]) for row in rows] == [
        "base asks",
        "base never asks",
        "augmented asks",
        "augmented never asks",
    ]
    # Without noise every view is the clean one, up to the rounding of a nearly equal runner-up.
    for row in rows:
        steps, *decided = (int(cell) for cell in row[-7:-2])
        assert steps == sum(decided) > 0
        assert decided[0] > 0
