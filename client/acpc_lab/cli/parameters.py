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
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from acpc import contract
from acpc.arrays import NDArray
from acpc.contract import (
    PairedRequest,
    PairRequest,
    PerturbationSet,
    PlanStart,
    ScoreRequest,
    Wire,
    WireEnum,
    bounds_of,
    check,
    from_json,
)
from acpc.contract.fields import UINT64
from acpc_client import CemBudget, CheckpointRef, DatasetAnchors, Objective

from acpc_lab.cli.commands import CHECKPOINT, PROTOCOL
from acpc_lab.cli.options import Shifts, given, read_grid, read_numbers

VIEWS = "Views of the history"
PLANNER = "Planner"
_BUDGET = ("candidates", "elites", "iterations", "horizon")
G = TypeVar("G")


def about(record: type[Any], name: str) -> str:
    """What the contract says of a field; of a record of the lab, its line in the docstring."""
    if issubclass(record, Wire):
        return contract.about(record, name)
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
    """Describes a field, with its default; empty without a description."""
    text, default = about(record, name), default_of(record, name)
    text = text.replace(f"Range: 0 to {UINT64}; default", "Default")
    silent = text and default and "default" not in text.lower()
    return f"{text.rstrip('.')} [{default}]." if silent else text


def sets(record: type[Any], name: str, *flags: str, panel: str | None = PROTOCOL) -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a field of a request, read as the field's type wants it.

    Where it has a parser its annotation is Any: typer takes an enum's as a wish to read its values.
    """
    more: dict[str, Any] = {}
    hint, kind = _types(record, name)
    if isinstance(kind, type) and issubclass(kind, WireEnum):
        known = {str(value): value for value in kind if value}
        more = {"parser": lambda text: _one_of(text, known), "metavar": "|".join(known)}
    elif get_origin(hint) is tuple:
        more = {"parser": lambda text: read_numbers(text, kind), "metavar": "A,B,..."}
    elif kind is Objective:
        more = {"parser": _objective, "metavar": "FILE"}
    bounds = bounds_of(record).get(name)
    if bounds is not None and bounds.max_length is None and math.isfinite(bounds.ge):
        more["min"] = bounds.ge
    help = in_words(record, name).replace("None: ", "default: ")
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


def _types(record: type[Any], name: str) -> tuple[Any, Any]:
    """The type of a field, and of its items or of its values other than None."""
    hint = get_type_hints(record)[name]
    return hint, (get_args(hint) or (hint,))[0]


def _one_of(text: str, known: Mapping[str, WireEnum]) -> WireEnum:
    if text not in known:
        raise typer.BadParameter(f"found {text!r}, wanted one of {', '.join(known)}")
    return known[text]


def _objective(path: str) -> Objective:
    try:
        found = from_json(Objective, Path(path).read_bytes())
        check(found)
    except (OSError, ValueError) as error:  # an ArgumentError is a ValueError
        raise typer.BadParameter(f"{path}: {error}") from error
    return found


def sets_fields(
    record: type[Any], *names: str, panel: str | None = PROTOCOL, last: bool = False, **flags: str
) -> Callable[[type[G]], type[G]]:
    """Adds options that set fields of a request to a group: before its own, or after them.

    They are None where they are not given, and named as the fields; ``flags`` has the flag of a
    field that goes by another one. ``last``: they follow the group's own.
    """

    def add(group: type[G]) -> type[G]:
        made: dict[str, Any] = {}
        for name in names:
            option = sets(record, name, *filter(None, [flags.get(name)]), panel=panel)
            kind = Any if option.parser else _types(record, name)[1] | None
            made[name] = Annotated[kind, option]
            setattr(group, name, None)
        own = group.__annotations__
        group.__annotations__ = own | made if last else made | own
        return group

    return add


Mode = Annotated[Any, sets(ScoreRequest, "numeric_mode")]
Weights = Annotated[Any, sets(PairRequest, "weights")]
SummaryWeights = Annotated[Any, sets(PlanStart, "weights")]
WeightsOption = Annotated[str, sets(CheckpointRef, "weights", panel=CHECKPOINT)]
Digest = Annotated[str, sets(CheckpointRef, "digest", panel=CHECKPOINT)]


@dataclass(frozen=True, kw_only=True)
@sets_fields(
    DatasetAnchors,
    *("frameskip", "one_per_episode", "window_future_frames", "sample"),
    one_per_episode="--one-per-episode/--many-per-episode",
    last=True,
)
class AnchorDraw:
    """How anchors are drawn from a dataset."""

    anchors: Annotated[int | None, sets(DatasetAnchors, "count", "--anchors", panel=None)] = None
    anchor_seed: Annotated[int | None, sets(DatasetAnchors, "seed", "--anchor-seed")] = None

    def drawn(self) -> dict[str, Any]:
        """Returns the given options by the names of ``DatasetAnchors``."""
        names = {"anchors": "count", "anchor_seed": "seed"}
        return given(**{names.get(f.name, f.name): getattr(self, f.name) for f in _DRAWN})


_DRAWN = fields(AnchorDraw)  # of a subclass too, which may hold more


@dataclass(frozen=True, kw_only=True)
class CheckpointChoice:
    """The checkpoint that an interactive command asks, and its arithmetic."""

    checkpoint: Annotated[
        str, typer.Option(metavar="NAME", help="Checkpoint at the server: its folder.")
    ]
    weights_file: WeightsOption = ""
    digest: Digest = ""
    numeric_mode: Mode = None

    @property
    def named(self) -> CheckpointRef:
        """The checkpoint."""
        return CheckpointRef(self.checkpoint, self.weights_file, self.digest)


@dataclass(frozen=True, kw_only=True)
@sets_fields(PerturbationSet, "draws", "seed", "anchor", panel=VIEWS, last=True)
class ViewChoice:
    """The other views of a history: drawn by the server, or an array of the input."""

    shift: Shifts = field(default_factory=list)

    def read(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Returns the views as arguments of the client's calls."""
        drawn = {name: value for name, value in vars(self).items() if name != "shift"}
        views = arrays.get("views")
        return {"perturbations": read_grid(self.shift), "views": views, **given(**drawn)}


@dataclass(frozen=True, kw_only=True)
@sets_fields(
    PlanStart,
    *("cost_reduction", "endpoint_tolerance", "objective"),
    panel=PLANNER,
    cost_reduction="--cost",
    endpoint_tolerance="--tolerance",
)
class PlannerChoice:
    """A planner's costs, and the tolerance of its endpoints."""

    def arguments(self) -> dict[str, Any]:
        """Returns the given options as arguments of the client's calls."""
        return given(**vars(self))


@dataclass(frozen=True, kw_only=True)
@sets_fields(CemBudget, *_BUDGET, panel=PLANNER)
@sets_fields(PairedRequest, "sampling_seed", "returns", "choices", panel=PLANNER)
class CemChoice:
    """The size of a CEM run, its random numbers, and what it returns."""

    def arguments(self) -> dict[str, Any]:
        """Returns the given options as arguments; the rest is the paper's reduced budget."""
        options = given(**vars(self))
        budget = {name: options.pop(name) for name in _BUDGET if name in options}
        return {"budget": CemBudget(**budget), **options}
