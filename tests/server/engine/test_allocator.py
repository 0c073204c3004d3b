"""The memory settings of a serving process."""

import sys

import processes
import pytest

pytestmark = pytest.mark.process

# In a thread, as the device's owner is one: arenas of threads give memory back the soonest.
PROGRAM = """
import resource
import sys
import threading
import torch
from acpc_server.engine.host import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()


def work(rounds):
    for _ in range(rounds):
        buffers = [torch.ones(1 << 20) for _ in range(24)]  # 4 MiB each
        del buffers


def measure():
    work(3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work(10)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


thread = threading.Thread(target=measure)
thread.start()
thread.join()
"""


def faults(setting: str) -> int:
    """Page faults of ten rounds, in a process of its own: the settings hold for a process."""
    command = [sys.executable, "-c", PROGRAM, setting]
    return int(processes.run(command).stdout)


def test_freed_memory_is_reused_without_page_faults() -> None:
    """Without the setting glibc gave every buffer back here, which made 21,507."""
    assert faults("keep") < 1000
