"""Runs a study command: takes rows from a file, or has checkpoints measured at a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from acpc_client.errors import AcpcError, ArgumentError, FailedPrecondition

from acpc_lab import studies
from acpc_lab.cli import render
from acpc_lab.cli.commands import PROTOCOL, Command, single_options
from acpc_lab.cli.options import Exit, Followed, Server, reported, said
from acpc_lab.cli.parameters import DrawnAnchors, Mode
from acpc_lab.cli.progress import View, shown, state_of
from acpc_lab.cli.study_tables import show
from acpc_lab.cli.table import Column
from acpc_lab.studies import Ask, Measured, bundle
from acpc_lab.tables import Arrays, Rows, read_rows, sha256

_SOURCE = "Where the rows come from: one of"
RowsFile = Annotated[
    Path, typer.Argument(metavar="ROWS", exists=True, dir_okay=False, help="CSV or Parquet.")
]
Reading = Annotated[
    Literal["paper", "released"],
    typer.Option(
        "--protocol",
        help="Reading of the protocol: the paper's letter, or the authors' released code.",
        rich_help_panel=PROTOCOL,
    ),
]
Answers = Sequence[tuple[studies.StudyCheckpoint, Any]]


@dataclass(frozen=True, kw_only=True)
class Output(Followed):
    """Where the results of a study go."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            file_okay=False,
            help="Write a bundle: rows, summary, figures.",
        ),
    ] = None
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Keep the rows as Parquet in the bundle, not as CSV.")
    ] = False

    def check(self) -> None:
        """Rejects a folder that cannot take a bundle, before any work is done.

        Raises:
            ArgumentError: It holds a study already.
        """
        if self.out is not None:
            bundle.require_free(self.out)

    def finish(
        self,
        evidence: studies.Evidence,
        sources: Sequence[Mapping[str, Any]],
        inputs: Mapping[str, bytes],
    ) -> None:
        """Prints the summary and, with a folder, writes the bundle and its figures."""
        if self.json:
            render.result(evidence.result(sources))
        else:
            show(evidence)
        out = self.out
        if out is None:
            return
        try:
            held = bundle.write(out, evidence, sources=sources, inputs=inputs, parquet=self.parquet)
        except OSError as error:
            raise ArgumentError(str(out), f"cannot be written: {error}") from error
        try:
            bundle.draw(held, evidence)
        except FailedPrecondition as missing:
            render.note(f"no figures: {missing.message}")
            render.note(f"  draw them later: acpc study plot {held.folder}")
        render.note(f"wrote {out}: study {held.digest[:12]}")
        render.note(f"  check it: acpc study verify {out}")


@dataclass(frozen=True, kw_only=True)
class Source(DrawnAnchors):
    """Where the rows of a study come from; how a dataset's anchors are drawn, and measured."""

    checkpoints: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="CSV of checkpoints to measure at the server; needs --out.",
            rich_help_panel=_SOURCE,
        ),
    ] = None
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Rows that were measured before, as CSV or Parquet; needs no server.",
            rich_help_panel=_SOURCE,
        ),
    ] = None
    numeric_mode: Mode = None


@dataclass(frozen=True)
class Plan:
    """What a study command does with its options.

    Attributes:
        parameters: Of the summary.
        ask: What to measure on each checkpoint.
        gather: Answers to rows and arrays; None: the rows as the server answers them.
        check: Rejects checkpoints that the study cannot take.
    """

    parameters: studies.Parameters
    ask: studies.AskStudy | studies.AskScore
    gather: Callable[[Answers], tuple[Rows, Arrays]] | None = None
    check: Callable[[Sequence[studies.StudyCheckpoint]], None] = lambda rows: None


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


_FILE = """

The file of `--checkpoints` is a CSV with a row per checkpoint. Jobs are noted in the folder of
`--out`: when the command is interrupted, the same command goes on."""


def measured_study(
    app: typer.Typer, *examples: str
) -> Callable[[Callable[..., Plan]], Callable[..., Plan]]:
    """Adds the command of a study that measures checkpoints, or takes rows from a file."""

    def add(planned: Callable[..., Plan]) -> Callable[..., Plan]:
        name = planned.__name__
        lines = "\n".join(f"    {example}" for example in examples)
        text = f"{studies.STUDIES[name].question}{_FILE}\n\n**Examples**\n\n{lines}\n"

        def run(*, source: Source, output: Output, server: Server, **options: Any) -> None:  # noqa: ANN401
            _run(name, planned(**options), source, output, server)

        app.command(name, help=with_columns(text, studies.CheckpointRows), cls=Command)(
            single_options(run, planned)
        )
        return planned

    return add


def file_source(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A file as a source of a bundle, and its content to keep there."""
    content = path.read_bytes()
    return {"kind": "file", "name": path.name, "sha256": sha256(content)}, {path.name: content}


def _run(name: str, plan: Plan, source: Source, output: Output, server: Server) -> None:
    """Makes the study from rows or from checkpoints, prints it, and writes the bundle."""
    study = studies.STUDIES[name]
    if (source.checkpoints is None) == (source.rows is None):
        found = "neither" if source.rows is None else "both"
        raise typer.BadParameter(f"found {found} --checkpoints and --rows; give one of them")
    with reported():
        output.check()
        if source.rows is not None:
            read: Rows = read_rows(source.rows, study.rows)
            told, inputs = file_source(source.rows)
            output.finish(studies.Evidence.of(study, read, plan.parameters), [told], inputs)
            return
    if output.out is None or source.checkpoints is None:
        raise typer.BadParameter(
            "is missing; jobs are noted and results written there", param_hint="--out"
        )
    with reported():
        told, inputs = file_source(source.checkpoints)
        listed = read_rows(source.checkpoints, studies.CheckpointRows)
        rows = studies.read_checkpoints(listed, **source.drawn())
        plan.check(rows)
    ask = replace(plan.ask, **said(numeric_mode=source.numeric_mode))
    measured = _measure(server, rows, ask, output.out)
    with reported():
        answers = [(item.row, item.answer) for item in measured]
        if plan.gather is None:
            gathered: Rows = studies.study_rows(study.rows, answers)
            arrays: Arrays = studies.study_arrays(answers)
        else:
            gathered, arrays = plan.gather(answers)
        evidence = studies.Evidence.of(study, gathered, plan.parameters, arrays)
        output.finish(evidence, [told, *(item.source() for item in measured)], inputs)


_VIEW: View[studies.MeasuringTask[Any]] = View(
    noun="checkpoints",
    before="submitting",
    columns=(Column("checkpoint", lambda status: status.task.title), Column("state", state_of)),
)


def _measure(
    server: Server, rows: Sequence[studies.StudyCheckpoint], ask: Ask[Any], out: Path
) -> list[Measured[Any]]:
    failed: list[str] = []
    with server.connect() as client, shown(_VIEW, live=True) as show_progress:

        def on_update(now: studies.MeasuringProgress) -> None:
            show_progress(now)
            for status in now.changed:
                if status.state.done and status.problem is not None and status.operation:
                    failed.append(f"{status.task.title}: {status.operation} {status.state.value}")

        try:
            return studies.measure(client, rows, ask, out, on_update, server.timeout)
        except KeyboardInterrupt as interrupt:
            render.note("interrupted: the jobs go on at the server")
            render.note("  give the same command again to go on")
            raise typer.Exit(Exit.INTERRUPTED) from interrupt
        except AcpcError as error:
            if not failed:
                raise
            render.error(error)
            render.note(f"  {failed[0]}; the same command does it again")
            raise typer.Exit(Exit.JOB_ENDED_BADLY) from error
