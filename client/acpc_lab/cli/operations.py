"""``acpc operations``."""

from __future__ import annotations

from typing import Annotated

import typer
from acpc_client import save_result, status_of

from acpc_lab.cli import render
from acpc_lab.cli.commands import Group, command
from acpc_lab.cli.follow import finish, follow, study_line
from acpc_lab.cli.gates import JunitOption
from acpc_lab.cli.options import (
    AnswerOutput,
    FollowOptions,
    Gate,
    GateOption,
    OutputOptions,
    ScoreOutput,
    Server,
)
from acpc_lab.cli.table import Format

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Lists, shows, watches, cancels and deletes jobs."
)


def full_name(name: str) -> str:
    """The name of a job, of which the id may be given alone."""
    return name if name.startswith("operations/") else f"operations/{name}"


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        callback=full_name,
        help="operations/ID, the ID or a beginning of it, its request id, or latest.",
    ),
]
Filter = Annotated[
    str,
    typer.Option(
        help="Terms joined by AND: state=failed, kind=score_checkpoint, checkpoint=NAME, "
        "created>=2026-01-31T08:00:00Z."
    ),
]


@command(app, "list")
def list_operations(*, filter: Filter = "", server: Server, form: OutputOptions) -> None:
    """Lists the jobs of the server."""
    with server.connect() as client:
        listed = list(client.operations.list(filter=filter))
    render.listing(listed, render.OPERATIONS, form.format, lambda item: status_of(item).to_dict())


@command(app)
def show(*, name: Name, server: Server, form: OutputOptions) -> None:
    """Shows one job as it is now, and its answer when it has one."""
    with server.connect() as client:
        operation = client.operations.get(name)
    if form.json:
        render.result(status_of(operation))
        return
    render.listing([operation], render.OPERATIONS, form.format)
    if form.format is Format.NAME:
        return
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
    form: FollowOptions,
) -> None:
    """Follows a job to its end; exits as `acpc score` does."""
    with server.connect() as client:
        ended = follow(client, name, timeout=server.timeout, output=output)
        finish(ended, form, gate, junit)


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
