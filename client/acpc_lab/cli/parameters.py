"""Options that set a field of a request, each defined once.

What the contract says of a field is the help of its option: meaning, unit, range and default. An
option that was not given is not sent, so the server's default holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import (
    PairedRequest,
    PairRequest,
    PerturbationSet,
    PlanStart,
    ScoreRequest,
    WireEnum,
    bounds_of,
    check,
    from_json,
)
from acpc_client import (
    AnchorSample,
    CemBudget,
    CemReturn,
    CheckpointRef,
    CostReduction,
    CoverageGoal,
    DatasetAnchors,
    NumericMode,
    Objective,
)
from numpy.typing import NDArray

from acpc_lab.cli.commands import CHECKPOINT, PROTOCOL
from acpc_lab.cli.options import Shifts, read_grid, read_numbers, said

VIEWS = "Views of the history"
PLANNER = "Planner"
COVERAGE = "Statement about all draws, made with any of these"


def about(record: type[Any], name: str) -> str:
    """What the docstring of a record, or of a base, says of a field; empty when nothing."""
    for cls in record.__mro__:
        text = cleandoc(cls.__dict__.get("__doc__") or "").partition("Attributes:\n")[2]
        found = re.search(rf"^    {name}: (.*(?:\n {{6,}}.*)*)", text, re.MULTILINE)
        if found:
            return re.sub(r"\s+", " ", found[1]).replace("``", "`")
    return ""


def default_of(record: type[Any], name: str) -> str:
    """The default of a field in words; empty when it has none, or leaves it to the server."""
    (value,) = (f.default for f in fields(record) if f.name == name)
    if isinstance(value, WireEnum):
        return str(value) if value else ""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def in_words(record: type[Any], name: str) -> str:
    """What a field is, and its default in brackets; empty when nothing is said of it."""
    text, default = about(record, name), default_of(record, name)
    return f"{text.rstrip('.')} [{default}]." if text and default else text


def sets(
    record: type[Any],
    name: str,
    *flags: str,
    panel: str | None = PROTOCOL,
    **more: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a field of a request."""
    bounds = bounds_of(record).get(name)
    if bounds is not None and bounds.max_length is None and math.isfinite(bounds.ge):
        more = {"min": bounds.ge, **more}
    help = in_words(record, name).replace("None: ", "default: ")
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


def choice(
    record: type[Any], name: str, kind: type[WireEnum], *flags: str, panel: str = PROTOCOL
) -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a field that holds an enum of the contract."""
    known = {str(value): value for value in kind if value}

    def parse(text: str) -> WireEnum:
        if text not in known:
            raise typer.BadParameter(f"found {text!r}, wanted one of {', '.join(known)}")
        return known[text]

    return sets(record, name, *flags, panel=panel, parser=parse, metavar="|".join(known))


def numbers(record: type[Any], name: str, kind: Callable[[str], float], *flags: str) -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a field that holds several numbers."""

    def parse(text: str) -> tuple[float, ...]:
        return read_numbers(text, kind)

    return sets(record, name, *flags, parser=parse, metavar="A,B,...")


def objective_file() -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a planner's objective, which is read from a JSON file."""

    def parse(path: str) -> Objective:
        try:
            found = from_json(Objective, Path(path).read_bytes())
            check(found)
        except (OSError, ValueError) as error:  # an ArgumentError is a ValueError
            raise typer.BadParameter(f"{path}: {error}") from error
        return found

    more = {"parser": parse, "metavar": "FILE"}
    return sets(PlanStart, "objective", panel=PLANNER, **more)


# The type of a parsed option is Any: typer takes an enum's annotation as a wish to read its values.
Mode = Annotated[Any, choice(ScoreRequest, "numeric_mode", NumericMode)]
Weights = Annotated[Any, numbers(PairRequest, "weights", float)]
SummaryWeights = Annotated[Any, numbers(PlanStart, "weights", float)]
WeightsFile = Annotated[str, sets(CheckpointRef, "weights", panel=CHECKPOINT)]
Digest = Annotated[str, sets(CheckpointRef, "digest", panel=CHECKPOINT)]


@dataclass(frozen=True, kw_only=True)
class DrawnAnchors:
    """How anchors are drawn from a dataset."""

    anchors: Annotated[int | None, sets(DatasetAnchors, "count", "--anchors", panel=None)] = None
    anchor_seed: Annotated[int | None, sets(DatasetAnchors, "seed", "--anchor-seed")] = None
    frameskip: Annotated[int | None, sets(DatasetAnchors, "frameskip")] = None
    one_per_episode: Annotated[
        bool | None,
        sets(DatasetAnchors, "one_per_episode", "--one-per-episode/--many-per-episode"),
    ] = None
    window_future_frames: Annotated[int | None, sets(DatasetAnchors, "window_future_frames")] = None
    sample: Annotated[Any, choice(DatasetAnchors, "sample", AnchorSample)] = None

    def drawn(self) -> dict[str, Any]:
        """What was given, as ``DatasetAnchors`` names it."""
        names = {"anchors": "count", "anchor_seed": "seed"}
        return said(**{names.get(f.name, f.name): getattr(self, f.name) for f in _DRAWN})


_DRAWN = fields(DrawnAnchors)  # of a subclass too, which may hold more


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """The checkpoint that an interactive command asks, and its arithmetic."""

    checkpoint: Annotated[
        str, typer.Option(metavar="NAME", help="Checkpoint at the server: its folder.")
    ]
    weights_file: WeightsFile = ""
    digest: Digest = ""
    numeric_mode: Mode = None

    @property
    def named(self) -> CheckpointRef:
        """The checkpoint."""
        return CheckpointRef(self.checkpoint, self.weights_file, self.digest)


@dataclass(frozen=True, kw_only=True)
class ViewChoice:
    """The other views of a history: drawn by the server, or an array of the input."""

    shift: Shifts = field(default_factory=list)
    draws: Annotated[int | None, sets(PerturbationSet, "draws", panel=VIEWS)] = None
    seed: Annotated[int | None, sets(PerturbationSet, "seed", panel=VIEWS)] = None
    anchor: Annotated[int | None, sets(PerturbationSet, "anchor", panel=VIEWS)] = None

    def read(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """What was said, as the client's calls take it."""
        return {
            "perturbations": read_grid(self.shift),
            "views": arrays.get("views"),
            **said(draws=self.draws, seed=self.seed, anchor=self.anchor),
        }


@dataclass(frozen=True, kw_only=True)
class PlannerChoice:
    """What a planner's costs are, and how exact its endpoints."""

    cost: Annotated[
        Any, choice(PlanStart, "cost_reduction", CostReduction, "--cost", panel=PLANNER)
    ] = None
    tolerance: Annotated[
        float | None, sets(PlanStart, "endpoint_tolerance", "--tolerance", panel=PLANNER)
    ] = None

    objective: Annotated[Any, objective_file()] = None

    def said(self) -> dict[str, Any]:
        """What was given, as the client's calls take it."""
        return said(
            cost_reduction=self.cost,
            endpoint_tolerance=self.tolerance,
            objective=self.objective,
        )


@dataclass(frozen=True, kw_only=True)
class CoverageChoice:
    """What to say of all draws; nothing where no option was given."""

    confidence: Annotated[float | None, sets(CoverageGoal, "confidence", panel=COVERAGE)] = None
    coverage: Annotated[float | None, sets(CoverageGoal, "coverage", panel=COVERAGE)] = None
    max_draws: Annotated[int | None, sets(CoverageGoal, "max_draws", panel=COVERAGE)] = None
    one_look: Annotated[
        bool | None, sets(CoverageGoal, "one_look", "--one-look", panel=COVERAGE)
    ] = None
    time_limit: Annotated[float | None, sets(CoverageGoal, "time_limit", panel=COVERAGE)] = None

    @property
    def goal(self) -> CoverageGoal | None:
        """What to say; None for nothing."""
        given = said(**vars(self))
        return CoverageGoal(**given) if given else None


@dataclass(frozen=True, kw_only=True)
class CemChoice:
    """The size of a CEM run, its random numbers, and what it returns."""

    candidates: Annotated[int | None, sets(CemBudget, "candidates", panel=PLANNER)] = None
    elites: Annotated[int | None, sets(CemBudget, "elites", panel=PLANNER)] = None
    iterations: Annotated[int | None, sets(CemBudget, "iterations", panel=PLANNER)] = None
    horizon: Annotated[int | None, sets(CemBudget, "horizon", panel=PLANNER)] = None
    sampling_seed: Annotated[int | None, sets(PairedRequest, "sampling_seed", panel=PLANNER)] = None
    returns: Annotated[Any, choice(PairedRequest, "returns", CemReturn, panel=PLANNER)] = None
    choices: Annotated[bool | None, sets(PairedRequest, "choices", panel=PLANNER)] = None

    @property
    def budget(self) -> CemBudget:
        """The size; what was not said is the paper's reduced budget."""
        names = ("candidates", "elites", "iterations", "horizon")
        return CemBudget(**said(**{name: getattr(self, name) for name in names}))

    def said(self) -> dict[str, Any]:
        """What else was given, as the client's calls take it."""
        return said(sampling_seed=self.sampling_seed, returns=self.returns, choices=self.choices)
