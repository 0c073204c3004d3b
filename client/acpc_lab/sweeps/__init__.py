"""Sweeps: checkpoints x shifts x severities x seeds, as one file that survives any interruption.

docs/sweeps.md describes the file and the ``acpc sweep`` command.
"""

from acpc_client.errors import RunEnded, ServerAway

from acpc_lab.campaigns import OutOfTime, Stopped, TaskState
from acpc_lab.sweeps.folder import Cell, SweepFolder, SweepPlan, again
from acpc_lab.sweeps.plan import Planner, item_of, likely
from acpc_lab.sweeps.reading import Label, SweepFileError, as_document, read_document, some
from acpc_lab.sweeps.results import SweepResults
from acpc_lab.sweeps.rows import BY_NAME, COLUMNS, CellResult, judged
from acpc_lab.sweeps.spec import SweepSpec, example, load_spec, read_spec
from acpc_lab.sweeps.sweep import CellTask, RunOptions, Sweep, SweepProgress

__all__ = [
    "Cell", "CellResult", "CellTask", "OutOfTime", "RunEnded", "RunOptions", "ServerAway",
    "Stopped", "Sweep", "SweepFileError", "SweepProgress", "SweepResults",
    "TaskState",
]  # fmt: skip
