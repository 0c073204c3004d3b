"""``acpc operations``."""

from dataclasses import dataclass
from typing import Annotated

import typer
from acpc_client import save_result, status_of

from acpc_lab.cli import render
from acpc_lab.cli.command import Command, group
from acpc_lab.cli.follow import ScoreOptions, finish, follow, study_line
from acpc_lab.cli.options import (
    AnchorValues,
    AnswerOutput,
    OutputOptions,
    Server,
)
from acpc_lab.cli.table import Format

app = group("operations", "Lists, shows, watches, cancels and deletes jobs.")


def full_name(name: str) -> str:
    """The name of a job, of which the id may be given alone."""
    return name if name.startswith("operations/") else f"operations/{name}"


@app.command("list", cls=Command)
@dataclass(frozen=True, kw_only=True)
class List(OutputOptions, Server):
    """Lists the jobs of the server."""

    filter: Annotated[
        str,
        typer.Option(
            help="Terms joined by AND: state=failed, kind=score_checkpoint, checkpoint=NAME, "
            "created>=2026-01-31T08:00:00Z."
        ),
    ] = ""

    def run(self) -> None:
        """Lists them."""
        with self.connect() as client:
            listed = list(client.operations.list(filter=self.filter))
        named = any(item.caller for item in listed)
        columns = [one for one in render.OPERATIONS if named or one.title != "caller"]
        render.listing(listed, columns, self.form, lambda item: status_of(item).to_dict())


@dataclass(frozen=True, kw_only=True)
class _OneJob(Server):
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            callback=full_name,
            help="operations/ID, the ID or a beginning of it, its request id, or latest.",
        ),
    ]


@app.command("show", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Show(OutputOptions, _OneJob):
    """Shows one job as it is now, and its answer when it has one."""

    anchor_values: AnchorValues = False

    def run(self) -> None:
        """Shows it."""
        with self.connect() as client:
            operation = client.operations.get(self.name)
        if self.json:
            render.result(status_of(operation), whole=self.anchor_values)
            return
        if operation.score is not None and self.form is not Format.NAME:
            wide = self.form is Format.WIDE
            render.score(operation.score, asked=render.asked(operation), wide=wide)
        render.listing([operation], render.OPERATIONS, self.form)
        if self.form is Format.NAME:
            return
        if operation.study is not None:
            render.line(study_line(operation.study))
        if operation.error is not None:
            render.line(f"{operation.error.code}: {operation.error.message}")


@app.command("watch", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Watch(ScoreOptions, _OneJob):
    """Follows a job to its end; exits as `acpc score` does."""

    def run(self) -> None:
        """Follows it."""
        with self.connect() as client:
            ended = follow(client, self.name, timeout=self.timeout, output=self.output)
            finish(ended, self)


@app.command("download", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Download(_OneJob):
    """Writes the answer of a job that succeeded into a file.

    It holds what was asked, too. Read it again with `acpc_client.load_result`.
    """

    output: AnswerOutput

    def run(self) -> None:
        """Writes it."""
        with self.connect() as client:
            operation = client.operations.get(self.name)
            if operation.study is None:
                operation.result()  # raises why there is none
            save_result(operation, self.output)
        render.line(f"{self.name}: {self.output}")


@app.command("cancel", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Cancel(_OneJob):
    """Asks for a job to be cancelled; it ends as soon as it can."""

    def run(self) -> None:
        """Asks, and says so where the job has ended already."""
        with self.connect() as client:
            name = client.operations.get(self.name).name
            client.operations.cancel(name)
            now = client.operations.get(name)
        ended = f"has ended already: {now.state.name.lower()}"
        render.line(f"{name}: {ended if now.done else 'cancellation requested'}")


@app.command("delete", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Delete(_OneJob):
    """Forgets a job that has ended."""

    def run(self) -> None:
        """Deletes it."""
        with self.connect() as client:
            name = client.operations.get(self.name).name
            client.operations.delete(name)
        render.line(f"{name}: deleted")
