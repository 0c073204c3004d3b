"""Training output to checkpoint folders, as data: nothing in a file is executed.

``read_run`` needs no torch, so that a hostile file is rejected before torch is loaded; what plans
and writes a folder lies in :mod:`acpc_server.importing.writing`, which loads it.
"""

from acpc_server.importing.reading import RunFile, read_run
from acpc_server.importing.sources import CONFIGS, SUFFIXES, Run, find_run, find_runs

__all__ = [
    "CONFIGS", "SUFFIXES", "Run", "RunFile", "find_run", "find_runs", "read_run", "writing",
]  # fmt: skip
