"""``acpc study``: the paper's studies, from rows or from checkpoints at a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from acpc_client.errors import ArgumentError

from acpc_lab.cli import render, study_jobs, study_scores
from acpc_lab.cli.options import Exit, Json, reported
from acpc_lab.cli.study_output import (
    Out,
    Parquet,
    RowsFile,
    check_out,
    file_source,
    finish,
    with_columns,
)
from acpc_lab.studies import (
    STUDIES,
    Evidence,
    ShiftParameters,
    ShiftRows,
    SweepRows,
    ThresholdParameters,
    bundle,
    chosen_elsewhere,
    read_rows,
    to_csv,
)
from acpc_lab.studies import verify as verify_bundle
from acpc_lab.studies.paper import collapse_rows, shift_rows

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The paper's studies on your own checkpoints: a table, figures, and a folder that can be "
    "verified and plotted again without a GPU.",
)
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="A study's folder.")
]
Points = Annotated[float, typer.Option(min=0, help="Points of clean success that may be lost.")]

_THRESHOLDS = r"""Do thresholds chosen on some tasks find the recovered checkpoints of others?

Tries the 6 x 4 grid of the paper on every nonempty proper subset of the tasks and tests each
choice on the other tasks. A row is a checkpoint of a training sweep under one visual shift.

**Examples**

    acpc study thresholds sweep.csv --out thresholds/
    acpc study thresholds sweep.csv --t-ir 0.2,0.3,0.5 --json
"""


def _grid(text: str, name: str) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"found {text!r}, wanted numbers like 0.1,0.2", param_hint=name
        ) from error


@app.command(help=with_columns(_THRESHOLDS, SweepRows))
def thresholds(
    *,
    rows: RowsFile,
    t_ir: Annotated[
        str, typer.Option("--t-ir", metavar="A,B,...", help="Thresholds of relative IR to try.")
    ] = "0.05,0.075,0.10,0.15,0.20,0.30",
    t_sr: Annotated[
        str, typer.Option("--t-sr", metavar="A,B,...", help="Thresholds of SR to try.")
    ] = "0.80,0.85,0.90,0.95",
    recovery: Annotated[
        float, typer.Option(help="Share of the possible improvement that counts as recovered.")
    ] = 0.8,
    clean_loss: Points = 5.0,
    out: Out = None,
    parquet: Parquet = False,
    as_json: Json = False,
) -> None:
    """Threshold selection."""
    with reported():
        check_out(out)
        parameters = ThresholdParameters(
            _grid(t_ir, "--t-ir"), _grid(t_sr, "--t-sr"), recovery, clean_loss
        )
        read = read_rows(rows, SweepRows)
        evidence = Evidence.of(STUDIES["thresholds"], read, parameters)
        source, inputs = file_source(rows)
        finish(evidence, out=out, sources=[source], inputs=inputs, parquet=parquet, as_json=as_json)


_SHIFTS = r"""Does the change of the screen score agree with the change in behaviour?

A row compares an augmented checkpoint with its unaugmented reference under a shift such as blur.
Thresholds stand in the columns `t_ir` and `t_sr`, come from a threshold study (for each task, the
pair chosen on all other tasks), or are the same for all.

**Examples**

    acpc study paper shifts > pairs.csv
    acpc study shifts pairs.csv
    acpc study shifts pairs.csv --thresholds-from thresholds/ --out shifts/
"""


@app.command(help=with_columns(_SHIFTS, ShiftRows))
def shifts(
    *,
    rows: RowsFile,
    t_ir: Annotated[float, typer.Option(help="Threshold of relative IR.")] = 0.30,
    t_sr: Annotated[float, typer.Option(help="Threshold of SR.")] = 0.95,
    thresholds_from: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder of a threshold study."),
    ] = None,
    gain: Annotated[float, typer.Option(min=0, help="Points that count as better.")] = 5.0,
    clean_loss: Points = 5.0,
    boundary: Annotated[
        float, typer.Option(min=0, help="Points by which a boundary case may miss the gain.")
    ] = 1.0,
    out: Out = None,
    parquet: Parquet = False,
    as_json: Json = False,
) -> None:
    """Cross-shift comparison."""
    with reported():
        check_out(out)
        read = read_rows(rows, ShiftRows)
        source, inputs = file_source(rows)
        sources = [source]
        if thresholds_from is not None:
            chosen = bundle.read(thresholds_from)
            read = chosen_elsewhere(read, chosen.evidence())
            sources.append({"kind": "study", "name": thresholds_from.name, "digest": chosen.digest})
        parameters = ShiftParameters(t_ir, t_sr, gain, clean_loss, boundary)
        evidence = Evidence.of(STUDIES["shifts"], read, parameters)
        finish(evidence, out=out, sources=sources, inputs=inputs, parquet=parquet, as_json=as_json)


study_jobs.add_to(app)
study_scores.add_to(app)


@app.command()
def verify(folder: Folder, *, as_json: Json = False) -> None:
    """Is a study what its folder says?

    Compares the SHA-256 of every file with the manifest, computes the summary again from the rows
    and compares every number. Exits with 0 when all is as it should be and with 1 otherwise, naming
    the first difference.

    **Example**

        acpc study verify drift/
    """
    with reported():
        found = verify_bundle(folder)
    if as_json:
        render.line(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    elif found.difference is None:
        render.line(
            f"OK: {found.study} study {found.digest}: {found.files} files and {found.values} values"
        )
    if found.difference is not None:
        render.note(f"first difference: {found.difference}")
        raise typer.Exit(Exit.ERROR)


@app.command()
def plot(folder: Folder) -> None:
    """Draws the figures of a study again, from its rows. Needs no server and no GPU.

    **Example**

        acpc study plot drift/
    """
    with reported():
        held = bundle.read(folder)
        drawn = bundle.draw(held, held.evidence())
    for name in drawn.figures:
        render.line(str(folder / name))


@app.command()
def paper(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="shifts or collapse.")],
) -> None:
    """Prints the rows that the paper prints, as CSV: an example of the input, and its check.

    **Example**

        acpc study paper shifts > pairs.csv && acpc study shifts pairs.csv
    """
    printed = {"shifts": shift_rows, "collapse": collapse_rows}
    with reported():
        if study not in printed:
            raise ArgumentError("STUDY", f"found {study!r}, wanted one of {', '.join(printed)}")
        render.line(to_csv(printed[study]()).rstrip("\n"))
