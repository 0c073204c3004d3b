"""``acpc operations``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from acpc_client import save_result, status_of

from acpc_lab.cli import render
from acpc_lab.cli.follow import finish, follow, study_line
from acpc_lab.cli.gates import JunitOption
from acpc_lab.cli.options import (
    AnswerOutput,
    Gate,
    GateOption,
    Json,
    ScoreOutput,
    Server,
    command,
)

app = typer.Typer(no_args_is_help=True, help="Lists, shows, watches, cancels and deletes jobs.")


def full_name(name: str) -> str:
    """The name of a job, of which the id may be given alone."""
    return name if name.startswith("operations/") else f"operations/{name}"


Name = Annotated[
    str, typer.Argument(metavar="NAME", callback=full_name, help="operations/ID, or the ID alone.")
]
Filter = Annotated[
    str,
    typer.Option(
        help="Terms joined by AND: state=failed, kind=score_checkpoint, checkpoint=NAME, "
        "created>=2026-01-31T08:00:00Z."
    ),
]


@command(app, "list")
def list_operations(*, filter: Filter = "", server: Server, as_json: Json = False) -> None:
    """Lists the jobs of the server."""
    with server.connect() as client:
        listed = list(client.operations.list(filter=filter))
    if as_json:
        render.line(json.dumps([status_of(item).to_dict() for item in listed], indent=2))
    else:
        render.operations(listed)


@command(app)
def show(*, name: Name, server: Server, as_json: Json = False) -> None:
    """Shows one job as it is now, and its answer when it has one."""
    with server.connect() as client:
        operation = client.operations.get(name)
    if as_json:
        render.result(status_of(operation))
        return
    render.operations([operation])
    if operation.score is not None:
        render.score(operation.score)
    if operation.study is not None:
        render.line(study_line(operation.study))
    if operation.error is not None:
        render.line(f"{operation.error.code}: {operation.error.message}")


@command(app)
def watch(
    *,
    name: Name,
    gate: GateOption = Gate.POINT,
    junit: JunitOption = None,
    output: ScoreOutput = None,
    server: Server,
    as_json: Json = False,
) -> None:
    """Follows a job to its end; exits as `acpc score` does."""
    with server.connect() as client:
        ended = follow(client, name, timeout=server.timeout, output=output)
        finish(ended, as_json, gate, junit)


@command(app)
def download(*, name: Name, output: AnswerOutput, server: Server) -> None:
    """Writes the answer of a job that succeeded into a file.

    It holds what was asked, too. Read it again with `acpc_client.load_result`.
    """
    with server.connect() as client:
        operation = client.operations.get(name)
        if operation.study is None:
            operation.result()  # raises why there is none
        save_result(operation, output)
    render.line(f"{name}: {output}")


@command(app)
def cancel(*, name: Name, server: Server) -> None:
    """Asks for a job to be cancelled; it ends as soon as it can."""
    with server.connect() as client:
        client.operations.cancel(name)
    render.line(f"{name}: cancellation requested")


@command(app)
def delete(*, name: Name, server: Server) -> None:
    """Forgets a job that has ended."""
    with server.connect() as client:
        client.operations.delete(name)
    render.line(f"{name}: deleted")
