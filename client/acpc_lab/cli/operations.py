"""``acpc operations``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from acpc_client import DEFAULT_TARGET

from acpc_lab.cli import render
from acpc_lab.cli.follow import follow, save, study_line
from acpc_lab.cli.options import Json, ScoreOutput, Target, Timeout, TlsCa, connect, score_format

app = typer.Typer(no_args_is_help=True, help="Lists, shows, watches, cancels and deletes jobs.")


def _full_name(name: str) -> str:
    return name if name.startswith("operations/") else f"operations/{name}"


Name = Annotated[
    str, typer.Argument(metavar="NAME", callback=_full_name, help="operations/ID, or the ID alone.")
]


@app.command("list")
def list_operations(
    filter: Annotated[
        str,
        typer.Option(
            help="Terms joined by AND: state=failed, kind=score_checkpoint, checkpoint=NAME, "
            "created>=2026-01-31T08:00:00Z."
        ),
    ] = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Lists the jobs of the server."""
    with connect(target, timeout, tls_ca) as client:
        listed = list(client.operations.list(filter=filter))
    if as_json:
        render.line(json.dumps([item.to_dict() for item in listed], indent=2))
    else:
        render.operations(listed)


@app.command()
def show(
    *,
    name: Name,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Shows one job as it is now, and its answer when it has one."""
    with connect(target, timeout, tls_ca) as client:
        operation = client.operations.get(name)
    if as_json:
        render.line(operation.to_json(indent=2))
        return
    render.operations([operation])
    if operation.score is not None:
        render.score(operation.score)
    if operation.study is not None:
        render.line(study_line(operation.study))
    if operation.error is not None:
        render.line(f"{operation.error.code}: {operation.error.message}")


@app.command()
def watch(
    *,
    name: Name,
    output: ScoreOutput = None,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Follows a job to its end; exits as `acpc score` does."""
    with connect(target, timeout, tls_ca) as client:
        follow(client, name, timeout=timeout, as_json=as_json, output=output)


@app.command()
def download(
    *,
    name: Name,
    output: Annotated[
        Path,
        typer.Option(
            dir_okay=False,
            writable=True,
            callback=score_format,
            help="Where to: .json to read; .npz or .parquet to load again exactly.",
        ),
    ],
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
) -> None:
    """Writes the answer of a job that succeeded into a file.

    Read a score, which holds its per-anchor values, again with `acpc_client.load_score`, and the
    rows of a study, which are written as .npz, with `acpc_client.StudyResult.load`.
    """
    with connect(target, timeout, tls_ca) as client:
        save(client.operations.get(name), output)
    render.line(f"{name}: {output}")


@app.command()
def cancel(
    *,
    name: Name,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
) -> None:
    """Asks for a job to be cancelled; it ends as soon as it can."""
    with connect(target, timeout, tls_ca) as client:
        client.operations.cancel(name)
    render.line(f"{name}: cancellation requested")


@app.command()
def delete(
    *,
    name: Name,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
) -> None:
    """Forgets a job that has ended."""
    with connect(target, timeout, tls_ca) as client:
        client.operations.delete(name)
    render.line(f"{name}: deleted")
