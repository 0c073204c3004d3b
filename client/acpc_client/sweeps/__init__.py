"""Sweeps: checkpoints x shifts x severities x seeds, as one file that survives anything.

docs/sweeps.md describes the file and the ``acpc sweep`` command.
"""

from acpc_client.sweeps.cells import Cell
from acpc_client.sweeps.journal import CellState
from acpc_client.sweeps.link import OutOfTime, RunEnded, ServerAway, Stopped
from acpc_client.sweeps.progress import CellStatus, SweepProgress
from acpc_client.sweeps.reading import SweepFileError
from acpc_client.sweeps.results import CellResult, SweepResults
from acpc_client.sweeps.spec import SweepSpec
from acpc_client.sweeps.sweep import Sweep

__all__ = [
    "Cell",
    "CellResult",
    "CellState",
    "CellStatus",
    "OutOfTime",
    "RunEnded",
    "ServerAway",
    "Stopped",
    "Sweep",
    "SweepFileError",
    "SweepProgress",
    "SweepResults",
    "SweepSpec",
]
