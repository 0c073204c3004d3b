"""``acpc study``: a command for each of the paper's studies, and what checks their folders."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import (
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    ScoreProtocol,
    SensitivityStudy,
)
from acpc_client import CemBudget, Result, save_result
from acpc_client.errors import ArgumentError

from acpc_lab import studies
from acpc_lab.cli import render
from acpc_lab.cli.command import PROTOCOL, Command, Options, about, group, sets
from acpc_lab.cli.options import AnswerOptions, Exit, output_option, reported
from acpc_lab.cli.study import Measured, OfRows, StudyOptions, source_of
from acpc_lab.studies import STUDIES, bundle
from acpc_lab.tables import read_rows, to_csv

app = group(
    "study",
    "The paper's studies on your own checkpoints: a table, figures, and a folder that can be "
    "verified and plotted again without a GPU.",
)
_SHIFT: dict[str, Any] = {"metavar": "KIND:SEVERITY"}
Grid = Annotated[
    list[str] | None,
    typer.Option("--shift", help="Instead of the paper's; KIND:A,B is a grid.", **_SHIFT),
]
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="A study's folder.")
]


def _number(study: str, name: str, *flags: str, **more: Any) -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a parameter of a study."""
    return sets(STUDIES[study].parameters, name, *flags, **{"panel": None, **more})


def _choice(study: str, name: str, choices: str) -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a parameter that a reading of the protocol decides where it is not given."""
    kind = STUDIES[study].parameters
    return typer.Option(help=about(kind, name), metavar=choices, rich_help_panel=PROTOCOL)


@dataclass(frozen=True, kw_only=True)
class Thresholds(OfRows):
    """The thresholds of a training sweep."""

    study = STUDIES["thresholds"]

    ir_grid: Annotated[Any, _number("thresholds", "ir_grid", "--t-ir")] = None
    sr_grid: Annotated[Any, _number("thresholds", "sr_grid", "--t-sr")] = None
    recovery: Annotated[float | None, _number("thresholds", "recovery")] = None
    clean_loss: Annotated[float | None, _number("thresholds", "clean_loss")] = None
    clean_gain: Annotated[float | None, _number("thresholds", "clean_gain")] = None
    reading: Annotated[
        str | None,
        _number("thresholds", "reading", "--protocol", panel=PROTOCOL, metavar="paper|released"),
    ] = None
    ties: Annotated[str | None, _choice("thresholds", "ties", "runs|checkpoints")] = None
    no_onset: Annotated[str | None, _choice("thresholds", "no_onset", "past|LEVELS")] = None
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

    def run(self) -> None:
        """Tries the thresholds on the rows, and writes the best where asked."""
        with reported():
            self.check()
            parameters = self.parameters()
            evidence = studies.Evidence.of(
                self.study, read_rows(self.rows, self.study.rows), parameters
            )
            source, inputs = source_of(self.rows)
            self.finish(evidence, [source], inputs)
            if self.file is not None:
                self._write(self.file, evidence, source)

    def _write(self, file: Path, evidence: studies.Evidence, source: Mapping[str, Any]) -> None:
        """Writes the thresholds, and prints the warnings that they carry.

        Raises ArgumentError: The rows have several families, or no such one.
        """
        chosen = studies.calibrated(evidence.rows, evidence.parameters, self.family)
        save_result(Result("thresholds", chosen, evidence.result([source]).request), file)
        pair = f"relative IR at most {chosen.ir:g}, SR at least {chosen.sr:g}"
        render.note(f"wrote {file}: {pair}")
        render.notes(chosen.warnings)


@dataclass(frozen=True, kw_only=True)
class Shifts(OfRows):
    """The comparison of checkpoints across shifts."""

    study = STUDIES["shifts"]

    t_ir: Annotated[float | None, _number("shifts", "t_ir")] = None
    t_sr: Annotated[float | None, _number("shifts", "t_sr")] = None
    gain: Annotated[float | None, _number("shifts", "gain")] = None
    clean_loss: Annotated[float | None, _number("shifts", "clean_loss")] = None
    boundary: Annotated[float | None, _number("shifts", "boundary")] = None
    thresholds_from: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of a threshold study.")
    ] = None

    def run(self) -> None:
        """Compares the rows, under thresholds of their own or of another study."""
        with reported():
            self.check()
            read = read_rows(self.rows, studies.ShiftRows)
            source, inputs = source_of(self.rows)
            sources = [source]
            if self.thresholds_from is not None:
                held = bundle.read(self.thresholds_from)
                read = studies.chosen_elsewhere(read, held.evidence())
                sources.append(
                    {"kind": "study", "name": self.thresholds_from.name, "digest": held.digest}
                )
            self.finish(studies.Evidence.of(self.study, read, self.parameters()), sources, inputs)


@dataclass(frozen=True, kw_only=True)
class Drift(Measured):
    """The error-drift study."""

    study = STUDIES["drift"]

    shifts: Grid = None
    draws: Annotated[int | None, sets(DriftStudy, "draws")] = None
    seed: Annotated[int | None, sets(DriftStudy, "seed")] = None
    horizon: Annotated[int | None, sets(DriftStudy, "horizon")] = None
    groups: Annotated[int | None, sets(DriftStudy, "groups")] = None
    destroyed: Annotated[Any, sets(DriftStudy, "destroyed")] = None
    reading: Annotated[Any, sets(DriftStudy, "reading", "--protocol")] = None
    alpha: Annotated[float | None, _number("drift", "alpha")] = None


@dataclass(frozen=True, kw_only=True)
class Planner(Measured):
    """The planner study."""

    study = STUDIES["planner"]

    shifts: Grid = None
    draws: Annotated[int | None, sets(PlannerStudy, "draws")] = None
    seed: Annotated[int | None, sets(PlannerStudy, "seed")] = None
    candidates: Annotated[int | None, sets(CemBudget, "candidates")] = None
    elites: Annotated[int | None, sets(CemBudget, "elites")] = None
    iterations: Annotated[int | None, sets(CemBudget, "iterations")] = None
    horizon: Annotated[int | None, sets(CemBudget, "horizon")] = None
    sampling_seed: Annotated[int | None, sets(PlannerStudy, "sampling_seed")] = None
    cost_reduction: Annotated[Any, sets(PlannerStudy, "cost_reduction", "--cost")] = None
    returns: Annotated[Any, sets(PlannerStudy, "returns")] = None
    history: Annotated[int | None, sets(PlannerStudy, "history")] = None
    goal_offset: Annotated[int | None, sets(PlannerStudy, "goal_offset")] = None
    reading: Annotated[Any, sets(PlannerStudy, "reading", "--protocol")] = None
    alpha: Annotated[float | None, _number("planner", "alpha")] = None
    pool: Annotated[str | None, _choice("planner", "pool", "last|first")] = None
    distance: Annotated[str | None, _choice("planner", "distance", "acpc|displacement")] = None


@dataclass(frozen=True, kw_only=True)
class Geometry(Measured):
    """The study of local geometry."""

    study = STUDIES["geometry"]

    shifts: Grid = None
    draws: Annotated[int | None, sets(GeometryStudy, "draws")] = None
    seed: Annotated[int | None, sets(GeometryStudy, "seed")] = None
    horizon: Annotated[int | None, sets(GeometryStudy, "horizon")] = None
    motion: Annotated[bool, sets(GeometryStudy, "motion", "--motion")] = False
    highlighted: Annotated[int | None, _number("geometry", "highlighted")] = None
    perplexity: Annotated[float | None, _number("geometry", "perplexity")] = None
    tsne_seed: Annotated[int | None, _number("geometry", "tsne_seed")] = None
    envelope: Annotated[float | None, _number("geometry", "envelope")] = None


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Measured):
    """The study of local sensitivity."""

    study = STUDIES["sensitivity"]

    probes: Annotated[int | None, sets(SensitivityStudy, "probes")] = None
    seed: Annotated[int | None, sets(SensitivityStudy, "seed")] = None
    horizon: Annotated[int | None, sets(SensitivityStudy, "horizon")] = None
    step: Annotated[float | None, sets(SensitivityStudy, "step")] = None
    directions: Annotated[str | None, sets(SensitivityStudy, "directions")] = None


@dataclass(frozen=True, kw_only=True)
class _Scored(Measured):
    """A study of scores without a reference."""

    shift: Annotated[str | None, typer.Option(help="Instead of the paper's shift.", **_SHIFT)] = (
        None
    )
    horizon: Annotated[int | None, sets(ScoreProtocol, "horizon")] = None
    draws: Annotated[int | None, sets(ScoreProtocol, "draws")] = None
    seed: Annotated[int | None, sets(ScoreProtocol, "seed")] = None


@dataclass(frozen=True, kw_only=True)
class Horizons(_Scored):
    """The study of horizons and quantiles."""

    study = STUDIES["horizons"]

    quantile: Annotated[float | None, sets(ScoreProtocol, "quantile")] = None
    extra_horizons: Annotated[Any, sets(ScoreProtocol, "extra_horizons", "--more-horizons")] = None
    extra_quantiles: Annotated[Any, sets(ScoreProtocol, "extra_quantiles", "--more-quantiles")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class Collapse(_Scored):
    """The study of collapsed representations."""

    study = STUDIES["collapse"]

    distance_share: Annotated[float | None, _number("collapse", "distance_share")] = None


_JOBS = """The file of `--checkpoints` is a CSV with a row per checkpoint. When the command is
interrupted, the same command finds its jobs again and goes on."""


def _help(study: studies.Study) -> str:
    """What a study answers, how its command is given, and the columns of its file."""
    fields = (study.rows if study.ask is None else studies.CheckpointRows).fields()
    width = max(len(field.name) for field in fields)
    columns = [
        f"    {field.name:<{width}}  {field.column.about}"
        + "; may be absent" * field.column.optional
        for field in fields
    ]
    examples = [f"    {example}" for example in study.examples]
    parts = [study.question, study.about or _JOBS, "**Examples**", "\n".join(examples)]
    return "\n\n".join((*parts, "**Columns**", "\n".join(columns)))


_KINDS: tuple[type[StudyOptions], ...] = (
    Thresholds, Shifts, Collapse, Drift, Planner, Geometry, Sensitivity, Horizons
)  # fmt: skip
_COMMANDS = {kind.study.name: kind for kind in _KINDS}
for _name, _study in STUDIES.items():
    app.command(_name, help=_help(_study), cls=Command)(_COMMANDS[_name])


@app.command("verify", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Verify(AnswerOptions):
    """Is a study what its folder says?

    Compares the SHA-256 of every file with the manifest, computes the summary again from the rows
    and compares every number. Exits with 0 when all is as it should be and with 1 otherwise, naming
    the first difference.

    **Example**

        acpc study verify drift/
    """

    folder: Folder

    def run(self) -> None:
        """Verifies it."""
        with reported():
            found = studies.verify(self.folder)
        if self.json or found.difference is None:
            what = f"{found.study} study {found.digest}"
            held = f"{found.files} files and {found.values} values"
            self.answer(found, lambda: render.line(f"OK: {what}: {held}"))
        if found.difference is not None:
            render.note(f"first difference: {found.difference}")
            raise typer.Exit(Exit.ERROR)


@app.command("plot", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Plot(Options):
    """Draws the figures of a study again, from its rows. Needs no server and no GPU.

    **Example**

        acpc study plot drift/
    """

    folder: Folder

    def run(self) -> None:
        """Draws them."""
        with reported():
            held = bundle.read(self.folder)
            drawn = bundle.draw(held, held.evidence())
        for name in drawn.figures:
            render.line(str(self.folder / name))


@app.command("paper", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Paper(Options):
    """Prints the rows that the paper prints, as CSV: an example of the input, and its check.

    **Example**

        acpc study paper shifts > pairs.csv && acpc study shifts pairs.csv
    """

    study: Annotated[str, typer.Argument(metavar="STUDY", help="shifts or collapse.")]

    def run(self) -> None:
        """Prints them."""
        with reported():
            if self.study not in studies.PAPER_ROWS:
                wanted = ", ".join(studies.PAPER_ROWS)
                raise ArgumentError("STUDY", f"found {self.study!r}, wanted one of {wanted}")
            render.line(to_csv(studies.PAPER_ROWS[self.study]()).rstrip("\n"))
