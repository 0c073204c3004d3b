"""The planner loop, run as its reader runs it: a server of its own and a line a checkpoint."""

import re
import sys

import processes
import pytest
from example_scripts import EXAMPLES

pytestmark = pytest.mark.slow


def test_the_loop_ends_with_a_line_per_checkpoint() -> None:
    command = [sys.executable, EXAMPLES / "planner_loop.py", "--episodes", "1", "--sigma", "0"]
    lines = processes.run(command).stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["two-room-base", "two-room-augmented"]
    for line in lines:
        # Without noise every view is the clean one, up to the rounding of a nearly equal runner-up.
        assert int(re.search(r"(\d+) accept", line)[1]) > 0
