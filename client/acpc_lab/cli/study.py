"""``acpc study``: the paper's studies from rows or checkpoints, and what checks their folders."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import ScoreProtocol, StudyRequest
from acpc_client import CemBudget, DatasetAnchors, Result, save_result
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab import studies
from acpc_lab.cli import render
from acpc_lab.cli.command import Command, Keys, Options, group, in_words
from acpc_lab.cli.follow import shown
from acpc_lab.cli.options import (
    DRAW,
    AnchorCount,
    Followed,
    Server,
    interruptible,
    out_option,
    read_grid,
)
from acpc_lab.cli.protocol import ProtocolOption, keys_of, read_protocol
from acpc_lab.studies import STUDIES, bundle
from acpc_lab.tables import read_rows, sha256, to_csv

app = group(
    "study",
    "The paper's studies on your own checkpoints: a table, figures, and a folder that can be "
    "verified and plotted again without a GPU.",
)
_LEFT = (
    "interrupted: jobs that the server has go on",
    "  give the same command again to go on",
)
_FILE: dict[str, Any] = {"exists": True, "dir_okay": False, "metavar": "FILE"}


def keys_of_study(study: studies.Study) -> Keys:
    """What a protocol file of a study may say: its parameters, and what it asks the server for."""
    keys = dict(keys_of(study.parameters, [f.name for f in dataclasses.fields(study.parameters)]))
    if study.ask is not None:
        request: Any = type(study.ask.request)
        left_out = ("shifts", "budget", "reading" if request is ScoreProtocol else "")
        names = [f.name for f in dataclasses.fields(request) if f.name not in left_out]
        keys |= keys_of(request, names)
        if hasattr(study.ask.request, "budget"):
            budget = [f.name for f in dataclasses.fields(CemBudget)]
            keys |= keys_of(CemBudget, budget, "budget")
        keys |= {**keys_of(DatasetAnchors, DRAW, "anchors")}
        keys |= keys_of(StudyRequest, ("numeric_mode",))
    return keys


@app.command("run", cls=Command)
class Run(Followed, AnchorCount, Server):
    """Makes a study, from rows that were measured before or from checkpoints at a server.

    STUDY is thresholds, shifts, drift, planner, geometry, sensitivity, horizons or collapse;
    `acpc study run STUDY` alone explains it: what it asks, the columns of its files, the keys of
    its protocol. When the command is interrupted, the same command finds its jobs again.

    **Examples**

        acpc study run drift --checkpoints unaugmented.csv --out drift/
        acpc study run drift --rows drift/rows.csv --protocol '{alpha: 10}'
        acpc study run thresholds --rows sweep.csv --thresholds thresholds.json
        acpc study run shifts --rows paper

    Attributes:
        name: Which study.
        rows: Rows that were measured before, as CSV; paper: those that the paper prints.
        checkpoints: Checkpoints to measure at the server, as CSV; needs --out.
        out: Write a bundle: rows, summary, figures.
        shifts: Instead of the paper's; KIND:A,B is a grid.
        family: Whose thresholds to write, where the rows have several families.
        thresholds_from: Of shifts: a threshold study's.
    """

    name: Annotated[str, typer.Argument(metavar="STUDY")]
    rows: Annotated[str | None, typer.Option(metavar="FILE|paper")] = None
    checkpoints: Annotated[Path | None, typer.Option(**_FILE)] = None
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", file_okay=False)] = None
    protocol: ProtocolOption = None
    shifts: Annotated[list[str] | None, typer.Option("--shift", metavar="KIND:SEVERITY")] = None
    thresholds: Annotated[
        Path | None,
        out_option(
            "Of thresholds: also write those that do best on all tasks, for later scores.",
            (".json",),
            "--thresholds",
        ),
    ] = None
    family: str = ""
    thresholds_from: Annotated[
        Path | None, typer.Option(metavar="FOLDER", exists=True, file_okay=False)
    ] = None

    def __call__(self) -> None:
        study = STUDIES.get(self.name)
        if study is None:
            wanted = ", ".join(STUDIES)
            raise ArgumentError("STUDY", f"found {self.name!r}, wanted one of {wanted}")
        measured = study.ask is not None and self.checkpoints is not None
        if measured == (self.rows is not None):
            for text in _explained(study):
                render.line(text)
            one = "--rows or --checkpoints" if study.ask else "--rows"
            raise ArgumentError("STUDY", f"give {one}: the file with the columns above")
        read = read_protocol(self.protocol, keys_of_study(study))
        if self.out is not None:
            bundle.require_free(self.out)
        parameters = _parameters(study, read)
        if self.rows is not None:
            self._from_rows(study, self.rows, parameters)
            return
        if self.out is None or self.checkpoints is None:
            raise ArgumentError("--out", "is missing; results are written there")
        ask = self._ask(study, read)
        file, inputs = _source(self.checkpoints.name, self.checkpoints.read_bytes())
        listed = read_rows(self.checkpoints, studies.CheckpointRows)
        drawn = self.drawn() | read.get("anchors", {})
        cells = studies.read_checkpoints(listed, **drawn)
        study.check(cells, parameters)
        found = self._measure(cells, ask)
        answers = [(item.row, item.answer) for item in found]
        if study.gather is None:
            made, arrays = studies.gathered(study.rows, answers)
        else:
            made, arrays = study.gather(answers, parameters, render.note)
        evidence = studies.Evidence.of(study, made, parameters, arrays)
        self._finish(evidence, [file, *(item.source() for item in found)], inputs)

    def _from_rows(self, study: studies.Study, name: str, parameters: Any) -> None:  # noqa: ANN401
        rows: Any
        if name == "paper":
            if study.name not in studies.PAPER_ROWS:
                printed = f"the paper prints the rows of {', '.join(studies.PAPER_ROWS)} alone"
                raise ArgumentError("--rows", printed)
            rows = studies.PAPER_ROWS[study.name]()
            file, inputs = _source(f"{name}.csv", to_csv(rows).encode())
        else:
            rows = read_rows(Path(name), study.rows)
            file, inputs = _source(Path(name).name, Path(name).read_bytes())
        sources = [file]
        if self.thresholds_from is not None:
            held = bundle.read(self.thresholds_from)
            rows = studies.chosen_elsewhere(rows, held.evidence())
            sources.append(
                {"kind": "study", "name": self.thresholds_from.name, "digest": held.digest}
            )
        evidence = studies.Evidence.of(study, rows, parameters)
        self._finish(evidence, sources, inputs)
        if self.thresholds is not None:
            chosen = studies.calibrated(evidence.rows, evidence.parameters, self.family)
            request = evidence.result(sources).request
            save_result(Result("thresholds", chosen, request), self.thresholds)
            pair = f"relative IR at most {chosen.ir:g}, SR at least {chosen.sr:g}"
            render.note(f"wrote {self.thresholds}: {pair}")
            render.notes(chosen.warnings)

    def _ask(self, study: studies.Study, read: dict[str, Any]) -> studies.Ask:
        """The request to measure on each checkpoint, with what the options say."""
        usual = study.ask
        assert usual is not None  # noqa: S101 - its rows are measured
        request: Any = usual.request
        names = {item.name for item in dataclasses.fields(request)}
        changes = {name: value for name, value in read.items() if name in names - {"budget"}}
        if "budget" in read:
            changes["budget"] = dataclasses.replace(request.budget, **read["budget"])
        grid = tuple(read_grid(self.shifts or ()))
        if grid and "shifts" in names:
            changes["shifts"] = grid
        elif grid:
            if usual.shift is None or len(grid) > 1:
                raise ArgumentError("--shift", "this study takes one")
            usual = dataclasses.replace(usual, shift=grid[0])
        mode = {name: read[name] for name in ("numeric_mode",) if name in read}
        return dataclasses.replace(usual, request=dataclasses.replace(request, **changes), **mode)

    def _finish(
        self, evidence: studies.Evidence, sources: Sequence[Any], inputs: dict[str, bytes]
    ) -> None:
        """Prints the summary and, with a folder, writes the bundle and its figures."""
        if self.json:
            render.result(evidence.result(sources))
        else:
            render.prose(evidence.study.question)
            for part in evidence.study.shown(evidence.summary):
                if isinstance(part, str):
                    render.prose(part)
                elif part.printed:
                    render.columns(part.items, *part.columns)
            render.prose(f"in the paper: {evidence.study.paper}")
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
        render.note(f"  check it: acpc verify {out}")

    def _measure(
        self, rows: Sequence[studies.StudyCheckpoint], ask: studies.Ask
    ) -> list[studies.MeasuringTask]:
        with (
            self.connect() as client,
            shown("checkpoints", "submitting") as progress,
            interruptible(_LEFT),
        ):
            return studies.measure(client, rows, ask, progress, self.timeout)


def _source(name: str, content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A file as a source of a bundle, and its content to keep there."""
    return {"kind": "file", "name": name, "sha256": sha256(content)}, {name: content}


def _parameters(study: studies.Study, read: dict[str, Any]) -> studies.Parameters:
    """The parameters of the summary; one that the request has too takes the same value."""
    names = {item.name for item in dataclasses.fields(study.parameters)}
    values = {name: value for name, value in read.items() if name in names}
    if "reading" in values:
        values["reading"] = str(values["reading"])
    return study.parameters.from_dict(values)


def _explained(study: studies.Study) -> Iterator[str]:
    """What a study answers, the columns of its files, and the keys of its protocol."""
    yield study.question
    if study.about:
        yield f"\n{study.about}"
    yield "\nExamples:"
    yield from (f"  {example}" for example in study.examples)
    kinds: dict[str, Any] = {"--rows": study.rows}
    if study.ask is not None:
        kinds = {"--checkpoints": studies.CheckpointRows, **kinds}
    for option, kind in kinds.items():
        yield f"\nColumns of {option}:"
        for field in kind.fields():
            yield f"  {field.name}: {field.about}" + "; may be absent" * (field.optional)
    yield "\nKeys of --protocol:"
    for key, (record, name) in keys_of_study(study).items():
        yield f"  {key}: {in_words(record, name)}"


@app.command("plot", cls=Command)
class Plot(Options):
    """Draws the figures of a study again, from its rows. Needs no server and no GPU.

    **Example**

        acpc study plot drift/
    """

    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="A study's folder."),
    ]

    def __call__(self) -> None:
        held = bundle.read(self.folder)
        for path in bundle.draw(held, held.evidence()):
            render.line(str(path))
