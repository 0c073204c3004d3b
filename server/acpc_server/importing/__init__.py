"""Training output to checkpoint folders, as data: nothing in a file is executed.

What looks through files lies in :mod:`acpc_server.importing.reading`, what plans and writes a
folder in :mod:`acpc_server.importing.writing`; both load torch.
"""

from acpc_server.importing.sources import CONFIGS, SUFFIXES, Run, find_run, find_runs

__all__ = ["CONFIGS", "SUFFIXES", "Run", "find_run", "find_runs", "reading", "writing"]
