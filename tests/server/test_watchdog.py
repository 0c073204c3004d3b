"""Each device call has its own time, and a rest has none.

tests/e2e/test_device_failures.py has processes that are ended.
"""

import sys

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
