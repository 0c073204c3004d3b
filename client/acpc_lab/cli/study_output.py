"""What every ``acpc study`` command does in the end: print, write the bundle, draw."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.cli import render
from acpc_lab.cli.study_tables import show
from acpc_lab.studies import AnyEvidence, Rows, bundle

RowsFile = Annotated[
    Path,
    typer.Argument(metavar="ROWS", exists=True, dir_okay=False, help="CSV, or Parquet with [lab]."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FOLDER", file_okay=False, help="Write a bundle: rows, summary, figures."
    ),
]
Parquet = Annotated[
    bool, typer.Option("--parquet", help="Keep the rows as Parquet in the bundle, not as CSV.")
]


def with_columns(text: str, kind: type[Rows]) -> str:
    """Help of a command, with the columns of its file."""
    fields = kind.fields()
    width = max(len(field.name) for field in fields)
    lines = [
        f"    {field.name:<{width}}  {field.column.about}"
        + ("; may be absent" if field.column.optional else "")
        for field in fields
    ]
    return "\n".join([text, "", "**Columns**", "", *lines])


def check_out(folder: Path | None) -> None:
    """Refuses a folder that cannot take a bundle, before any work is done.

    Raises:
        ArgumentError: It holds a study already.
    """
    if folder is not None:
        bundle.require_free(folder)


def file_source(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A file as a source of a bundle, and its content to keep there."""
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return {"kind": "file", "name": path.name, "sha256": digest}, {path.name: content}


def finish(
    evidence: AnyEvidence,
    *,
    out: Path | None,
    sources: Sequence[Mapping[str, Any]],
    inputs: Mapping[str, bytes],
    parquet: bool,
    as_json: bool,
) -> None:
    """Prints the summary and, with a folder, writes the bundle and its figures."""
    if as_json:
        render.line(json.dumps(evidence.summary.to_dict(), indent=2, allow_nan=False))
    else:
        show(evidence)
    if out is None:
        return
    try:
        held = bundle.write(out, evidence, sources=sources, inputs=inputs, parquet=parquet)
    except OSError as error:
        raise ArgumentError(str(out), f"cannot be written: {error}") from error
    draw(held, evidence)
    render.note(f"wrote {out}: study {held.digest[:12]}")
    render.note(f"  check it: acpc study verify {out}")


def draw(held: bundle.Bundle, evidence: AnyEvidence) -> None:
    """Draws the figures, or says what is missing to draw them."""
    try:
        bundle.draw(held, evidence)
    except FailedPrecondition as missing:
        render.note(f"no figures: {missing.message}")
        render.note(f"  draw them later: acpc study plot {held.folder}")
