"""Sweeps: checkpoints x shifts x severities x seeds, as one file that survives any interruption.

docs/sweeps.md describes the file and the ``acpc sweep`` command.
"""

from typing import TYPE_CHECKING

from acpc_client.errors import RunEnded, ServerAway

from acpc_lab.campaigns import OutOfTime, Stopped, TaskState
from acpc_lab.sweeps.folder import (
    Cell,
    SweepFolder,
    SweepPlan,
    again,
    example,
    load_spec,
    read_spec,
    recipe,
)
from acpc_lab.sweeps.plan import Planner, item_of
from acpc_lab.sweeps.reading import Label, SweepFileError, as_document, read_document
from acpc_lab.sweeps.results import SweepResults
from acpc_lab.sweeps.rows import BY_NAME, COLUMNS, CellResult, Quantity, judged
from acpc_lab.sweeps.sweep import CellStatus, CellTask, RunOptions, Sweep, SweepProgress

if TYPE_CHECKING:  # it loads pydantic
    from acpc_lab.sweeps.spec import SweepSpec

__all__ = [
    "Cell", "CellResult", "CellStatus", "OutOfTime", "RunEnded", "RunOptions", "ServerAway",
    "Stopped", "Sweep", "SweepFileError", "SweepProgress", "SweepResults",
    "TaskState",
]  # fmt: skip
