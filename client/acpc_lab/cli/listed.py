"""``acpc datasets``, ``acpc tasks`` and ``acpc shifts``."""

import inspect
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from acpc.contract import CHOICES, KINDS, example, severity_range

from acpc_lab.cli import render
from acpc_lab.cli.options import OutputOptions, Server
from acpc_lab.cli.table import Column

SHIFTS = tuple(
    Column(name, itemgetter(name), rank=rank)
    for name, rank in (("shift", 0), ("range", 2), ("example", 1), ("what", 0))
)


@dataclass(frozen=True, kw_only=True)
class Datasets(OutputOptions, Server):
    """Lists the datasets below the server's dataset root: ``--dataset`` can name the HDF5 files.

    Of those in other formats `acpc anchors upload` makes anchor sets, where they lie.
    """

    def run(self) -> None:
        """Lists them, and says what is to be done with those that no server reads."""
        with self.connect() as client:
            listed = list(client.datasets.list())
        render.listing(listed, render.DATASETS, self.form)
        other = [one.name for one in listed if one.format not in ("", "hdf5")]
        if other:
            render.note(f"servers read hdf5; of others: acpc anchors upload {other[0]} --task TASK")


@dataclass(frozen=True, kw_only=True)
class Tasks(OutputOptions, Server):
    """Lists task presets, and task files below the server's dataset root: what ``--task`` can name.

    A task says which columns a dataset has; of a file only the name is known until it is used.
    """

    def run(self) -> None:
        """Lists them."""
        with self.connect() as client:
            render.listing(list(client.datasets.tasks()), render.TASKS, self.form)


@dataclass(frozen=True, kw_only=True)
class Shifts(OutputOptions):
    """Lists the visual changes that ``--shift`` can name; asks no server.

    ``blur`` is short for ``gaussian_blur``. A server with plug-ins has more of them.
    """

    def run(self) -> None:
        """Lists them."""
        render.listing([_row(choice) for choice in CHOICES], SHIFTS, self.form, dict)


def _row(choice: str) -> dict[str, Any]:
    cls = KINDS[choice.partition(":")[0]]
    about, _, _ = (inspect.getdoc(cls) or "").partition("\n")
    return {
        "shift": choice,
        "range": severity_range(cls),
        "example": example(cls),
        "what": about.replace("``", ""),
    }
