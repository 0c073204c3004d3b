"""``acpc shifts``."""

from __future__ import annotations

import inspect
import subprocess
import sys
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import CHOICES, KINDS, example, severity_range
from acpc.extras import install_line

from acpc_lab.cli import render
from acpc_lab.cli.options import OutputOptions, Shifts, read_grid
from acpc_lab.cli.table import Column

COLUMNS = tuple(
    Column(name, itemgetter(name), rank=rank)
    for name, rank in (("shift", 0), ("range", 2), ("example", 1), ("what", 0))
)


def shifts(
    *,
    preview: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Draw the changes on these frames: an image, or .npy of uint8 "
            "([frames,] height, width, 3). Needs the server's package here, and no server.",
        ),
    ] = None,
    shift: Shifts = ["everyday"],  # noqa: B006  typer copies it
    output: Annotated[
        Path, typer.Option(dir_okay=False, help="The picture that --preview writes.")
    ] = Path("shifts.png"),
    image_size: Annotated[
        int, typer.Option(min=8, max=512, help="Of the model: lengths are in its pixels.")
    ] = 224,
    form: OutputOptions,
) -> None:
    """Lists the visual changes that ``--shift`` can name; asks no server.

    ``blur`` is short for ``gaussian_blur``. A server with plug-ins has more of them.

    **Examples**

        acpc shifts --preview frame.png
        acpc shifts --preview history.npy --shift blur:5,9 --shift haze:0.4+jpeg:30
    """
    if preview is not None:
        read_grid(shift)
        _draw(preview, output, image_size, shift)
    render.listing([_row(choice) for choice in CHOICES], COLUMNS, form.format, dict)


def _draw(file: Path, output: Path, image_size: int, shift: list[str]) -> None:
    """Has the server's package draw: nothing here loads what draws."""
    program = Path(sys.executable).with_name("acpc-server")
    if not program.exists():
        raise typer.BadParameter(
            f"the server's package draws; install it here: {install_line('server')}",
            param_hint="--preview",
        )
    asked = [part for text in shift for part in ("--shift", text)]
    size = ["--image-size", str(image_size)]
    command = [str(program), "preview-shifts", str(file), "--output", str(output), *size, *asked]
    raise typer.Exit(subprocess.run(command, check=False).returncode)  # noqa: S603  our own


def _row(choice: str) -> dict[str, Any]:
    cls = KINDS[choice.partition(":")[0]]
    about, _, _ = (inspect.getdoc(cls) or "").partition("\n")
    return {
        "shift": choice,
        "range": severity_range(cls),
        "example": example(cls),
        "what": about.replace("``", ""),
    }
