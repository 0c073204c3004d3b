"""Programs that tests start end, however the test run ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import processes
import pytest
from waiting import wait_until

pytestmark = pytest.mark.process
HARNESS = Path(processes.__file__).parent
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# A test run of its own, with a program that has started another.
RUN = """
import sys, processes
nested = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
print(processes.start([sys.executable, "-c", nested, *sys.argv[2:]]).pid, flush=True)
input()
"""


def in_group(group: int) -> list[int]:
    """Processes of a group that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(") ")[2].split()[:3]
        except OSError:  # it has just ended
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_run_leaves_no_program(sent: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HARNESS)}
    command = [sys.executable, "-c", RUN, *SLEEP]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with processes.running(command, env=environment, **pipes) as run:
        group = int(run.stdout.readline())
        wait_until(lambda: len(in_group(group)) == 2, "the program and its own did not start")
        run.send_signal(sent)
        wait_until(lambda: not in_group(group), "programs outlive the run")
