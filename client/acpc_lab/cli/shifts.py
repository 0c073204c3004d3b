"""``acpc shifts``."""

from __future__ import annotations

import inspect
import json
from typing import Any

from acpc.contract import CHOICES, KINDS, example, severity_range

from acpc_lab.cli import render
from acpc_lab.cli.options import Json


def shifts(as_json: Json = False) -> None:
    """Lists the visual changes that ``--shift`` can name; asks no server.

    ``blur`` is short for ``gaussian_blur``. A server with plug-ins has more of them.
    """
    rows = [_row(choice) for choice in CHOICES]
    if as_json:
        render.line(json.dumps(rows, indent=2))
        return
    render.table(list(rows[0]), [list(row.values()) for row in rows], words=True)


def _row(choice: str) -> dict[str, Any]:
    cls = KINDS[choice.partition(":")[0]]
    about, _, _ = (inspect.getdoc(cls) or "").partition("\n")
    return {
        "shift": choice,
        "range": severity_range(cls),
        "example": example(cls),
        "what": about,
    }
