"""Training output to checkpoint folders, as data: nothing in a file is executed.

What looks through files lies in :mod:`acpc_server.importing.reading`, what plans and writes a
folder, or saves a module, in :mod:`acpc_server.importing.writing`; these load torch. What downloads
from the Hub lies in :mod:`acpc_server.importing.hub`.
"""

from acpc_server.importing.sources import CONFIGS, SUFFIXES, Run, find_run, find_runs

__all__ = ["CONFIGS", "SUFFIXES", "Run", "find_run", "find_runs", "hub", "reading",
           "writing"]  # fmt: skip
