"""``acpc study``: the paper's studies from rows or checkpoints, and what checks their folders."""

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import ScoreProtocol, StudyRequest
from acpc_client import CemBudget, DatasetAnchors, Result, save_result
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab import studies
from acpc_lab.cli import command, render
from acpc_lab.cli.command import Command, Keys, Options, ProtocolOption, keys_of, read_protocol
from acpc_lab.cli.connection import Server
from acpc_lab.cli.follow import shown
from acpc_lab.cli.options import DRAW, AnchorCount, Followed, interruptible, out_option, read_grid
from acpc_lab.studies import STUDIES, bundle
from acpc_lab.tables import Quantity, read_rows, sha256, to_csv

app = command.group(
    "study",
    "The paper's studies on your own checkpoints: a table, figures, and a folder that can be "
    "verified and plotted again without a GPU.",
)
_LEFT = (
    "interrupted: jobs that the server has go on",
    "  give the same command again to go on",
)
_FILE: dict[str, Any] = {"exists": True, "dir_okay": False, "metavar": "FILE"}
Source = dict[str, Any]


def _names(record: Any) -> list[str]:  # noqa: ANN401 - a dataclass, or an instance of one
    return [field.name for field in dataclasses.fields(record)]


def keys_of_study(study: studies.Study) -> Keys:
    """What a protocol file of a study may say: its parameters, and what it asks the server for."""
    keys = dict(keys_of(study.parameters))
    if study.ask is not None:
        request = type(study.ask.request)
        others = {"shifts", "budget"} | ({"reading"} if request is ScoreProtocol else set())
        keys |= keys_of(request, [name for name in _names(request) if name not in others])
        if "budget" in _names(request):
            keys |= keys_of(CemBudget, section="budget")
        keys |= keys_of(DatasetAnchors, DRAW, "anchors")
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
        thresholds: Of thresholds: also write those that do best on all tasks, for later scores.
        family: Whose thresholds to write, where the rows have several families.
        thresholds_from: Of shifts: a threshold study's.
    """

    name: Annotated[str, typer.Argument(metavar="STUDY")]
    rows: Annotated[str | None, typer.Option(metavar="FILE|paper")] = None
    checkpoints: Annotated[Path | None, typer.Option(**_FILE)] = None
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", file_okay=False)] = None
    protocol: ProtocolOption = None
    shifts: Annotated[list[str] | None, typer.Option("--shift", metavar="KIND:SEVERITY")] = None
    thresholds: Annotated[Path | None, out_option("", (".json",), "--thresholds")] = None
    family: str = ""
    thresholds_from: Annotated[
        Path | None, typer.Option(metavar="FOLDER", exists=True, file_okay=False)
    ] = None

    def __call__(self) -> None:
        study = STUDIES.get(self.name)
        if study is None:
            wanted = ", ".join(STUDIES)
            raise ArgumentError("STUDY", f"found {self.name!r}, wanted one of {wanted}")
        ask, checkpoints = study.ask, self.checkpoints
        if (ask is not None and checkpoints is not None) == (self.rows is not None):
            for text in _explained(study):
                render.line(text)
            one = "--rows or --checkpoints" if ask else "--rows"
            raise ArgumentError("STUDY", f"give {one}: the file with the columns above")
        read = read_protocol(self.protocol, keys_of_study(study))
        if self.out is not None:
            bundle.require_free(self.out)
        # One that the request has too takes the same value.
        values = {name: read[name] for name in _names(study.parameters) if name in read}
        if "reading" in values:
            values["reading"] = str(values["reading"])
        parameters = study.parameters.from_dict(values)
        if self.rows is not None:
            self._from_rows(study, self.rows, parameters)
        elif ask is not None and checkpoints is not None:
            self._from_checkpoints(study, ask, checkpoints, parameters, read)

    def _from_rows(self, study: studies.Study, name: str, parameters: studies.Parameters) -> None:
        rows: Any
        if name == "paper":
            if study.name not in studies.PAPER_ROWS:
                printed = f"the paper prints the rows of {', '.join(studies.PAPER_ROWS)} alone"
                raise ArgumentError("--rows", printed)
            rows = studies.PAPER_ROWS[study.name]()
            file, content = "paper.csv", to_csv(rows).encode()
        else:
            rows = read_rows(Path(name), study.rows)
            file, content = Path(name).name, Path(name).read_bytes()
        sources = [_source(file, content)]
        if self.thresholds_from is not None:
            held = bundle.read(self.thresholds_from)
            rows = studies.chosen_elsewhere(rows, held.evidence())
            known = {"kind": "study", "name": self.thresholds_from.name, "digest": held.digest}
            sources.append(known)
        evidence = studies.Evidence.of(study, rows, parameters)
        self._finish(evidence, sources, {file: content})
        if self.thresholds is not None:
            chosen = studies.calibrated(evidence.rows, evidence.parameters, self.family)
            request = evidence.result(sources).request
            save_result(Result("thresholds", chosen, request), self.thresholds)
            pair = f"relative IR at most {chosen.ir:g}, SR at least {chosen.sr:g}"
            render.note(f"wrote {self.thresholds}: {pair}")
            render.notes(chosen.warnings)

    def _from_checkpoints(
        self,
        study: studies.Study,
        ask: studies.Ask,
        file: Path,
        parameters: studies.Parameters,
        read: dict[str, Any],
    ) -> None:
        if self.out is None:
            raise ArgumentError("--out", "is missing; results are written there")
        ask = self._asked(ask, read)
        content = file.read_bytes()
        listed = read_rows(file, studies.CheckpointRows)
        cells = studies.read_checkpoints(listed, **self.drawn() | read.get("anchors", {}))
        study.check(cells, parameters)
        with (
            self.connect() as client,
            shown("checkpoints", "submitting") as progress,
            interruptible(_LEFT),
        ):
            found = studies.measure(client, cells, ask, progress, self.timeout)
        answers = [(item.row, item.answer) for item in found]
        if study.gather is None:
            made, arrays = studies.gathered(study.rows, answers)
        else:
            made, arrays = study.gather(answers, parameters, render.note)
        evidence = studies.Evidence.of(study, made, parameters, arrays)
        sources = [_source(file.name, content), *(item.source() for item in found)]
        self._finish(evidence, sources, {file.name: content})

    def _asked(self, ask: studies.Ask, read: dict[str, Any]) -> studies.Ask:
        """What is measured on each checkpoint, with what the options say."""
        request: Any = ask.request
        names = _names(request)
        changes = {name: read[name] for name in names if name in read}
        if "budget" in changes:
            changes["budget"] = replace(request.budget, **changes["budget"])
        grid = tuple(read_grid(self.shifts or ()))
        if grid and "shifts" in names:
            changes["shifts"] = grid
        elif grid:
            if ask.shift is None or len(grid) > 1:
                raise ArgumentError("--shift", "this study takes one")
            ask = replace(ask, shift=grid[0])
        mode = read.get("numeric_mode", ask.numeric_mode)
        return replace(ask, request=replace(request, **changes), numeric_mode=mode)

    def _finish(
        self, evidence: studies.Evidence, sources: list[Source], inputs: dict[str, bytes]
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
                    render.show([Quantity(*column) for column in part.columns], part.items)
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
        render.note(f"wrote {out}: study {held.digest[: render.DIGITS]}")
        render.note(f"  check it: acpc verify {out}")


def _source(name: str, content: bytes) -> Source:
    """A file as a source of a bundle."""
    return {"kind": "file", "name": name, "sha256": sha256(content)}


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
        yield f"  {key}: {command.in_words(record, name)}"


@app.command("plot", cls=Command)
class Plot(Options):
    """Draws the figures of a study again, from its rows. Needs no server and no GPU.

    **Example**

        acpc study plot drift/

    Attributes:
        folder: A study's folder.
    """

    folder: Annotated[Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False)]

    def __call__(self) -> None:
        held = bundle.read(self.folder)
        for path in bundle.draw(held, held.evidence()):
            render.line(str(path))
