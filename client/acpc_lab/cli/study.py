"""``acpc study``: the paper's studies, from rows or from checkpoints at a server.

The studies declare what their commands take, print and draw; here are the commands themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc_client import Result, save_result
from acpc_client.errors import AcpcError, ArgumentError, FailedPrecondition

from acpc_lab import studies
from acpc_lab.cli import render
from acpc_lab.cli.commands import Command, Group, command, single_options
from acpc_lab.cli.options import (
    AnswerOptions,
    Exit,
    FollowOptions,
    Server,
    given,
    output_option,
    reported,
)
from acpc_lab.cli.parameters import AnchorDraw, Mode
from acpc_lab.cli.progress import ProgressView, shown, state_of
from acpc_lab.cli.study_options import asked_of, options_of, parameters_of
from acpc_lab.cli.table import Column
from acpc_lab.studies import bundle
from acpc_lab.tables import Rows, read_rows, sha256, to_csv

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The paper's studies on your own checkpoints: a table, figures, and a folder that can be "
    "verified and plotted again without a GPU.",
)
_FILE: dict[str, Any] = {"exists": True, "dir_okay": False}
_SOURCE: dict[str, Any] = {"metavar": "FILE", "rich_help_panel": "Where the rows come from: one of"}
RowsFile = Annotated[Path, typer.Argument(metavar="ROWS", help="CSV.", **_FILE)]
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="A study's folder.")
]


@dataclass(frozen=True, kw_only=True)
class Output(FollowOptions):
    """Destination of a study's results."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            file_okay=False,
            help="Write a bundle: rows, summary, figures.",
        ),
    ] = None

    def check(self) -> None:
        """Rejects a folder that cannot take a bundle, before any work is done.

        Raises ArgumentError: It holds a study already.
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
            render.line(evidence.study.question)
            for part in evidence.study.shown(evidence.summary):
                if isinstance(part, str):
                    render.line(part)
                else:
                    render.columns(part.items, *part.columns)
        out = self.out
        if out is None:
            return
        try:
            held = bundle.write(out, evidence, sources=sources, inputs=inputs)
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
class RowChoice(AnchorDraw):
    """Where the rows of a study come from; how a dataset's anchors are drawn, and measured."""

    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="CSV of checkpoints to measure at the server; needs --out.", **_SOURCE, **_FILE
        ),
    ] = None
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Rows that were measured before, as CSV; needs no server.",
            **_SOURCE,
            **_FILE,
        ),
    ] = None
    numeric_mode: Mode = None


def _add(study: studies.Study, run: Callable[..., None], rows: type[Rows], about: str) -> None:
    """Adds the command of a study: ``run`` with the study's own options as ``chosen``."""
    fields = rows.fields()
    width = max(len(field.name) for field in fields)
    columns = [
        f"    {field.name:<{width}}  {field.column.about}"
        + "; may be absent" * field.column.optional
        for field in fields
    ]
    examples = [f"    {example}" for example in study.examples]
    parts = (study.question, about, "**Examples**", "\n".join(examples), "**Columns**")
    text = "\n\n".join((*parts, "\n".join(columns)))
    run.__annotations__["chosen"] = options_of(study)
    app.command(study.name, help=text, cls=Command)(single_options(run))


def _source(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A file as a source of a bundle, and its content to keep there."""
    content = path.read_bytes()
    return {"kind": "file", "name": path.name, "sha256": sha256(content)}, {path.name: content}


@dataclass(frozen=True, kw_only=True)
class ThresholdFile:
    """Destination of thresholds for later checkpoints, and which are written."""

    file: Annotated[
        Path | None,
        output_option(
            "Also write the thresholds that do best on all tasks, for acpc score --thresholds.",
            (".json",),
            "--output",
        ),
    ] = None
    family: Annotated[
        str, typer.Option(help="Whose thresholds to write, where the rows have several families.")
    ] = ""

    def write(self, evidence: studies.Evidence, source: Mapping[str, Any]) -> None:
        """Writes the thresholds, and prints the warnings that they carry.

        Raises ArgumentError: The rows have several families, or no such one.
        """
        if self.file is None:
            return
        chosen = studies.calibrated(evidence.rows, evidence.parameters, self.family)
        save_result(Result("thresholds", chosen, evidence.result([source]).request), self.file)
        pair = f"relative IR at most {chosen.ir:g}, SR at least {chosen.sr:g}"
        render.note(f"wrote {self.file}: {pair}")
        render.notes(chosen.warnings)


def _thresholds(*, rows: RowsFile, chosen: Any, calibrated: ThresholdFile, output: Output) -> None:  # noqa: ANN401 - options
    study = studies.STUDIES["thresholds"]
    with reported():
        output.check()
        parameters = parameters_of(study, chosen)
        evidence = studies.Evidence.of(study, read_rows(rows, study.rows), parameters)
        source, inputs = _source(rows)
        output.finish(evidence, [source], inputs)
        calibrated.write(evidence, source)


def _shifts(
    *,
    rows: RowsFile,
    chosen: Any,  # noqa: ANN401 - options
    thresholds_from: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of a threshold study.")
    ] = None,
    output: Output,
) -> None:
    study = studies.STUDIES["shifts"]
    with reported():
        output.check()
        read = read_rows(rows, studies.ShiftRows)
        source, inputs = _source(rows)
        sources = [source]
        if thresholds_from is not None:
            held = bundle.read(thresholds_from)
            read = studies.chosen_elsewhere(read, held.evidence())
            sources.append({"kind": "study", "name": thresholds_from.name, "digest": held.digest})
        evidence = studies.Evidence.of(study, read, parameters_of(study, chosen))
        output.finish(evidence, sources, inputs)


def _measured(study: studies.Study) -> Callable[..., None]:
    """Makes a study from rows or from checkpoints, prints it, and writes the bundle."""

    def run(*, chosen: Any, source: RowChoice, output: Output, server: Server) -> None:  # noqa: ANN401 - options
        if (source.checkpoints is None) == (source.rows is None):
            found = "neither" if source.rows is None else "both"
            raise typer.BadParameter(f"found {found} --checkpoints and --rows; give one of them")
        with reported():
            output.check()
            parameters, ask = parameters_of(study, chosen), asked_of(study, chosen)
            if source.rows is not None:
                read: Rows = read_rows(source.rows, study.rows)
                file, inputs = _source(source.rows)
                output.finish(studies.Evidence.of(study, read, parameters), [file], inputs)
                return
        if output.out is None or source.checkpoints is None:
            raise typer.BadParameter("is missing; results are written there", param_hint="--out")
        with reported():
            file, inputs = _source(source.checkpoints)
            listed = read_rows(source.checkpoints, studies.CheckpointRows)
            rows = studies.read_checkpoints(listed, **source.drawn())
            study.check(rows, parameters)
        ask = replace(ask, **given(numeric_mode=source.numeric_mode))
        measured = _measure(server, rows, ask)
        with reported():
            answers = [(item.row, item.answer) for item in measured]
            if study.gather is None:
                held = studies.gathered(study.rows, answers)
            else:
                held = study.gather(answers, parameters, render.note)
            evidence = studies.Evidence.of(study, held[0], parameters, held[1])
            output.finish(evidence, [file, *(item.source() for item in measured)], inputs)

    return run


_VIEW: ProgressView[studies.MeasuringTask] = ProgressView(
    noun="checkpoints",
    before="submitting",
    columns=(Column("checkpoint", lambda status: status.task.title), Column("state", state_of)),
)


def _measure(
    server: Server, rows: Sequence[studies.StudyCheckpoint], ask: studies.Ask
) -> list[studies.CheckpointAnswer]:
    failed: list[str] = []
    with server.connect() as client, shown(_VIEW, live=True) as show_progress:

        def on_update(now: studies.MeasuringProgress) -> None:
            show_progress(now)
            for status in now.changed:
                if status.state.done and status.problem is not None and status.operation:
                    failed.append(f"{status.task.title}: {status.operation} {status.state.value}")

        try:
            return studies.measure(client, rows, ask, on_update, server.timeout)
        except KeyboardInterrupt as interrupt:
            render.note("interrupted: jobs that the server has go on")
            render.note("  give the same command again to go on")
            raise typer.Exit(Exit.INTERRUPTED) from interrupt
        except AcpcError as error:
            if not failed:
                raise
            render.error(error)
            render.note(f"  {failed[0]}; the same command does it again")
            raise typer.Exit(Exit.JOB_ENDED_BADLY) from error


_JOBS = """The file of `--checkpoints` is a CSV with a row per checkpoint. When the command is
interrupted, the same command finds its jobs again and goes on."""
for _study in studies.STUDIES.values():
    if _study.ask is None:
        _of_file: dict[str, Callable[..., None]] = {"thresholds": _thresholds, "shifts": _shifts}
        _add(_study, _of_file[_study.name], _study.rows, _study.about)
    else:
        _add(_study, _measured(_study), studies.CheckpointRows, _JOBS)


@command(app)
def verify(*, folder: Folder, form: AnswerOptions) -> None:
    """Is a study what its folder says?

    Compares the SHA-256 of every file with the manifest, computes the summary again from the rows
    and compares every number. Exits with 0 when all is as it should be and with 1 otherwise, naming
    the first difference.

    **Example**

        acpc study verify drift/
    """
    with reported():
        found = studies.verify(folder)
    if form.json or found.difference is None:
        what = f"{found.study} study {found.digest}"
        held = f"{found.files} files and {found.values} values"
        form.answer(found, lambda: render.line(f"OK: {what}: {held}"))
    if found.difference is not None:
        render.note(f"first difference: {found.difference}")
        raise typer.Exit(Exit.ERROR)


@command(app)
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


@command(app)
def paper(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="shifts or collapse.")],
) -> None:
    """Prints the rows that the paper prints, as CSV: an example of the input, and its check.

    **Example**

        acpc study paper shifts > pairs.csv && acpc study shifts pairs.csv
    """
    with reported():
        if study not in studies.PAPER_ROWS:
            wanted = ", ".join(studies.PAPER_ROWS)
            raise ArgumentError("STUDY", f"found {study!r}, wanted one of {wanted}")
        render.line(to_csv(studies.PAPER_ROWS[study]()).rstrip("\n"))
