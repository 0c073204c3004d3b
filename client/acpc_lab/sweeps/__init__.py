"""Sweeps: checkpoints x shifts x severities x seeds, as one file that survives anything.

docs/sweeps.md describes the file and the ``acpc sweep`` command.
"""

from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.example import EXAMPLE
from acpc_lab.sweeps.journal import CellState, Journal
from acpc_lab.sweeps.link import Link, OutOfTime, RunEnded, ServerAway, Stopped
from acpc_lab.sweeps.progress import CellStatus, SweepProgress
from acpc_lab.sweeps.reading import Node, SweepFileError
from acpc_lab.sweeps.results import CellResult, SweepResults
from acpc_lab.sweeps.spec import SweepSpec, read_spec
from acpc_lab.sweeps.sweep import PATIENCE_S, Sweep

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
