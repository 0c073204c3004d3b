"""Each device call has its own time, and a rest has none.

tests/e2e/test_device_failures.py has processes that are ended.
"""

import signal
import subprocess
import sys
import time

import processes
import pytest

WATCHED = """
import itertools, sys, time
from acpc_server.observe import ServerHealth
from acpc_server.watchdog import Watchdog

calls = itertools.count()
texts = {"many": lambda: f"call {next(calls)}", "none": str, "one": lambda: "the call"}
dog = Watchdog(texts[sys.argv[1]], 1.5, ServerHealth(list), lambda: sys.stderr.write("left"))
dog.start()
time.sleep(4.5)
dog.stop()
"""


@pytest.mark.process
@pytest.mark.parametrize(("calls", "left"), [("many", False), ("none", False), ("one", True)])
def test_a_call_alone_lasts_too_long(calls: str, left: bool) -> None:
    ended = processes.run([sys.executable, "-c", WATCHED, calls], check=False)
    assert (ended.returncode, "left" in ended.stderr) == (0, left), ended.stderr


STOPPED = """
import sys, time
from acpc_server.observe import ServerHealth
from acpc_server.watchdog import Watchdog

dog = Watchdog(lambda: "the call", 5.0, ServerHealth(list), lambda: sys.stderr.write("left"))
dog.start()
time.sleep(2.5)
print("ready", flush=True)
time.sleep(1.0)
dog.stop()
"""


@pytest.mark.process
def test_a_process_that_was_stopped_has_not_computed_meanwhile() -> None:
    command = [sys.executable, "-c", STOPPED]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with processes.running(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(6.5)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=processes.GENEROUS_SECONDS)
    assert (process.returncode, said) == (0, "")
