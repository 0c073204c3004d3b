"""The memory settings of a serving process."""

import subprocess
import sys

PROGRAM = """
import resource
import sys
import torch
from acpc_server.engine.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(20):
    torch.ones(1 << 20)  # 4 MiB, above the default threshold of a mapping of its own
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    torch.ones(1 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_is_reused_without_page_faults() -> None:
    """In a process of its own, because the settings hold for a whole process."""
    command = [sys.executable, "-c", PROGRAM, "keep"]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert faults < 100  # 100 buffers of 1024 pages
