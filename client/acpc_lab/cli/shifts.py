"""``acpc shifts``."""

from __future__ import annotations

import inspect
from operator import itemgetter
from typing import Any

from acpc.contract import CHOICES, KINDS, example, severity_range

from acpc_lab.cli import render
from acpc_lab.cli.options import OutputOptions
from acpc_lab.cli.table import Column

COLUMNS = tuple(
    Column(name, itemgetter(name), rank=rank)
    for name, rank in (("shift", 0), ("range", 2), ("example", 1), ("what", 0))
)


def shifts(*, form: OutputOptions) -> None:
    """Lists the visual changes that ``--shift`` can name; asks no server.

    ``blur`` is short for ``gaussian_blur``. A server with plug-ins has more of them.
    """
    render.listing([_row(choice) for choice in CHOICES], COLUMNS, form.format, dict)


def _row(choice: str) -> dict[str, Any]:
    cls = KINDS[choice.partition(":")[0]]
    about, _, _ = (inspect.getdoc(cls) or "").partition("\n")
    return {
        "shift": choice,
        "range": severity_range(cls),
        "example": example(cls),
        "what": about.replace("``", ""),
    }
