"""Makes a study from rows or from checkpoints at a server, prints it and writes its bundle."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from acpc.contract import Reading, parse
from acpc_client.errors import AcpcError, ArgumentError, FailedPrecondition

from acpc_lab import studies
from acpc_lab.cli import render
from acpc_lab.cli.command import given
from acpc_lab.cli.options import (
    AnchorDraw,
    Exit,
    FollowOptions,
    Mode,
    Server,
    as_usage,
    read_grid,
    reported,
)
from acpc_lab.cli.progress import ProgressView, shown
from acpc_lab.studies import bundle
from acpc_lab.tables import Rows, read_rows, sha256

_FILE: dict[str, Any] = {"exists": True, "dir_okay": False}
_SOURCE: dict[str, Any] = {"metavar": "FILE", "rich_help_panel": "Where the rows come from: one of"}


def source_of(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A file as a source of a bundle, and its content to keep there."""
    content = path.read_bytes()
    return {"kind": "file", "name": path.name, "sha256": sha256(content)}, {path.name: content}


@dataclass(frozen=True, kw_only=True)
class StudyOptions(FollowOptions):
    """A study's command: its parameters are those of its options that the study names."""

    study: ClassVar[studies.Study]

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

    def parameters(self) -> studies.Parameters:
        """The parameters of the summary; one that the request has too takes the same option.

        Raises ArgumentError: One is out of range.
        """
        names = [item.name for item in dataclasses.fields(self.study.parameters)]
        values = given(**{name: getattr(self, name) for name in names})
        if isinstance(values.get("reading"), Reading):
            values["reading"] = str(values["reading"])
        if "no_onset" in values:
            with contextlib.suppress(ValueError):  # a word
                values["no_onset"] = float(values["no_onset"])
        return self.study.parameters(**values)

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
            render.line(f"in the paper: {evidence.study.paper}")
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
class OfRows(StudyOptions):
    """A study of rows that other programs wrote."""

    rows: Annotated[Path, typer.Argument(metavar="ROWS", help="CSV.", **_FILE)]


_VIEW: ProgressView[studies.MeasuringTask] = ProgressView("checkpoints", "submitting")


@dataclass(frozen=True, kw_only=True)
class Measured(StudyOptions, AnchorDraw, Server):
    """A study from rows, or from checkpoints that are measured at a server."""

    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="CSV of checkpoints to measure at the server; needs --out.", **_SOURCE, **_FILE
        ),
    ] = None
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Rows that were measured before, as CSV; needs no server.", **_SOURCE, **_FILE
        ),
    ] = None
    numeric_mode: Mode = None

    def run(self) -> None:
        """Makes the study, prints it, and writes the bundle."""
        if (self.checkpoints is None) == (self.rows is None):
            found = "neither" if self.rows is None else "both"
            raise typer.BadParameter(f"found {found} --checkpoints and --rows; give one of them")
        study = self.study
        with reported():
            self.check()
            parameters, ask = self.parameters(), self.ask()
            if self.rows is not None:
                read: Rows = read_rows(self.rows, study.rows)
                file, inputs = source_of(self.rows)
                self.finish(studies.Evidence.of(study, read, parameters), [file], inputs)
                return
        if self.out is None or self.checkpoints is None:
            raise typer.BadParameter("is missing; results are written there", param_hint="--out")
        with reported():
            file, inputs = source_of(self.checkpoints)
            listed = read_rows(self.checkpoints, studies.CheckpointRows)
            rows = studies.read_checkpoints(listed, **self.drawn())
            study.check(rows, parameters)
        measured = self._measure(rows, ask)
        with reported():
            answers = [(item.row, item.answer) for item in measured]
            if study.gather is None:
                held = studies.gathered(study.rows, answers)
            else:
                held = study.gather(answers, parameters, render.note)
            evidence = studies.Evidence.of(study, held[0], parameters, held[1])
            self.finish(evidence, [file, *(item.source() for item in measured)], inputs)

    def ask(self) -> studies.Ask:
        """Builds the request to measure on each checkpoint from the given options."""
        usual = self.study.ask
        assert usual is not None  # noqa: S101 - its rows are measured
        shift: str | None = getattr(self, "shift", None)
        with as_usage("--shift"):
            chosen = parse(shift) if shift else usual.shift
        mode = given(numeric_mode=self.numeric_mode)
        return dataclasses.replace(
            usual, request=self._changed(usual.request), shift=chosen, **mode
        )

    def _changed(self, record: Any) -> Any:  # noqa: ANN401 - a request
        """The record with the options that are named as its fields."""
        names = [item.name for item in dataclasses.fields(record)]
        values = given(**{name: getattr(self, name, None) for name in names})
        if "shifts" in values:
            values["shifts"] = tuple(read_grid(values["shifts"]))
        if "budget" in names:
            values["budget"] = self._changed(record.budget)
        return dataclasses.replace(record, **values)

    def _measure(
        self, rows: Sequence[studies.StudyCheckpoint], ask: studies.Ask
    ) -> list[studies.CheckpointAnswer]:
        failed: list[str] = []
        with self.connect() as client, shown(_VIEW, live=True) as show_progress:

            def on_update(now: studies.MeasuringProgress) -> None:
                show_progress(now)
                for status in now.changed:
                    if status.state.done and status.problem is not None and status.operation:
                        state = status.state.value
                        failed.append(f"{status.task.title}: {status.operation} {state}")

            try:
                return studies.measure(client, rows, ask, on_update, self.timeout)
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
