"""Arrays from files on the command line."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

Input = Annotated[
    Path,
    typer.Option(exists=True, dir_okay=False, help="NPZ file with the arrays listed above."),
]


def read(path: Path, needed: Sequence[str], optional: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file; objects are never unpickled.

    Raises:
        typer.BadParameter: Not such a file, or one with other arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise typer.BadParameter(f"{path} is not an NPZ file of plain arrays: {error}") from error
    missing = [name for name in needed if name not in arrays]
    unknown = [name for name in arrays if name not in (*needed, *optional)]
    if missing or unknown:
        wrong = f"missing {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        wanted = f"wanted {', '.join(needed)} and optionally {', '.join(optional)}"
        raise typer.BadParameter(f"{path}: {wrong}; {wanted}", param_hint="--input")
    return arrays


def check_views(shifts: Sequence[str], arrays: dict[str, NDArray[Any]]) -> None:
    """Refuses a command with both kinds of views, or with none.

    Raises:
        typer.BadParameter: Both ``--shift`` and an array ``views``, or neither.
    """
    if bool(shifts) == ("views" in arrays):
        found = "both" if shifts else "neither"
        joint = "and" if shifts else "nor"
        raise typer.BadParameter(
            f"found {found} --shift {joint} an array views; give one of them", param_hint="--shift"
        )
