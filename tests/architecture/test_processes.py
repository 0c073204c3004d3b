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
ACPC, ACPC_SERVER = (Path(sys.executable).with_name(name) for name in ("acpc", "acpc-server"))
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


def test_a_forked_program_has_its_arguments_environment_and_exit_code(tmp_path: Path) -> None:
    version = processes.run([ACPC_SERVER, "--version"])
    assert version.stdout.startswith("acpc-server ")
    assert version.stderr == ""
    wrong = processes.run(
        [ACPC_SERVER, "serve", "--checkpoint-root", "here"], check=False,
        cwd=tmp_path, env={**os.environ, "ACPC_PORT": "no number"},
    )  # fmt: skip
    assert wrong.returncode == 2
    assert "ACPC_PORT" in wrong.stderr


def test_what_is_not_ended_is_named() -> None:
    def told(pid: int) -> list[str]:
        return [line for line in processes.left_running() if line.startswith(f"{pid}: ")]

    with processes.running(SLEEP) as process:
        (left,) = told(process.pid)
        assert "time.sleep(600)" in left
    assert told(process.pid) == []
