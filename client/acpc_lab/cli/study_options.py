"""Makes the options of a study's command from what the study measures and computes.

A field of the request or of the parameters is an option of its name; its docstring is the help.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from acpc.contract import WireEnum, bounds_of, parse
from acpc_client import CemBudget, Reading

from acpc_lab import studies
from acpc_lab.cli.commands import PROTOCOL
from acpc_lab.cli.options import as_usage, given, read_grid, read_numbers
from acpc_lab.cli.parameters import about, in_words, sets

FLAGS = {
    "reading": "--protocol",
    "cost_reduction": "--cost",
    "extra_horizons": "--more-horizons",
    "extra_quantiles": "--more-quantiles",
    "ir_grid": "--t-ir",
    "sr_grid": "--t-sr",
}
"""Options that are not named as their field is."""
_SHIFT: dict[str, Any] = {"metavar": "KIND:SEVERITY"}
_GRID = "Instead of the paper's; KIND:A,B is a grid."
Option = tuple[str, Any, Any]
"""Name, annotated type and default."""


def _flag(name: str) -> str:
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def _numbers(name: str, kind: Callable[[str], float]) -> dict[str, Any]:
    flag = _flag(name)
    return {"metavar": "A,B,...", "parser": lambda text: read_numbers(text, kind, flag)}


def _with_default(text: str, values: Any) -> str:  # noqa: ANN401 - numbers
    return f"{text.rstrip('.')} [{','.join(f'{value:g}' for value in values)}]."


def _requested(record: Any, names: tuple[str, ...] = ()) -> Iterator[Option]:  # noqa: ANN401 - a request
    """An option for each field of a request, or for some; None where it is not given."""
    kind = type(record)
    hints = get_type_hints(kind)
    for name in names or [item.name for item in dataclasses.fields(kind)]:
        hint = hints[name]
        if name == "shifts":
            option = typer.Option("--shift", help=_GRID, **_SHIFT)
            yield name, Annotated[list[str], option], dataclasses.field(default_factory=list)
        elif hint is CemBudget:
            yield from _requested(getattr(record, name))
        elif isinstance(hint, type) and issubclass(hint, WireEnum):
            yield name, Annotated[Any, sets(kind, name, _flag(name))], None
        elif get_origin(hint) is tuple:
            text = _with_default(in_words(kind, name), getattr(record, name))
            more = _numbers(name, get_args(hint)[0])
            option = typer.Option(_flag(name), help=text, rich_help_panel=PROTOCOL, **more)
            yield name, Annotated[Any, option], None
        elif hint is bool:
            yield name, Annotated[bool, sets(kind, name, _flag(name))], False
        else:
            yield name, Annotated[hint | None, sets(kind, name, _flag(name))], None


def _computed(kind: type[studies.Parameters], known: set[str]) -> Iterator[Option]:
    """An option for each parameter that the request does not have."""
    hints, bounds = get_type_hints(kind), bounds_of(kind)
    for item in dataclasses.fields(kind):
        name, hint, default = item.name, hints[item.name], item.default
        more: dict[str, Any] = {"help": about(kind, name)}
        if name in known:
            continue
        if name == "reading":
            hint, more = Literal["paper", "released"], more | {"rich_help_panel": PROTOCOL}
        elif "readings" in item.metadata:
            choices = item.metadata["readings"].values()
            more["metavar"] = "|".join("LEVELS" if isinstance(c, float) else c for c in choices)
            hint, more["rich_help_panel"] = str | None, PROTOCOL
        elif get_origin(hint) is tuple:
            more |= _numbers(name, float)
            more["help"] = _with_default(more["help"], default)
            hint, default = Any, None
        elif math.isfinite(bounds[name].ge):
            more["min"] = bounds[name].ge
        yield name, Annotated[hint, typer.Option(_flag(name), **more)], default


def options_of(study: studies.Study) -> type[Any]:
    """The options of a study's command, as a group: a dataclass with a field for each."""
    found: list[Option] = []
    match study.ask:
        case studies.AskStudy(study=request):
            found += _requested(request)
        case studies.AskScore(shift=shift, protocol=request):
            option = typer.Option("--shift", help=f"The shift [{shift}].", **_SHIFT)
            found.append(("shift", Annotated[str | None, option], None))
            found += _requested(request, tuple(study.options))
    known = {name for name, _, _ in found}
    found += _computed(study.parameters, known)
    return dataclasses.make_dataclass("Options", found, frozen=True, kw_only=True)


def parameters_of(study: studies.Study, options: object) -> studies.Parameters:
    """The parameters of the summary; one that the request has too takes the same option.

    Raises ArgumentError: One is out of range.
    """
    names = {item.name for item in dataclasses.fields(study.parameters)}
    values = {name: value for name, value in given(**vars(options)).items() if name in names}
    if isinstance(values.get("reading"), Reading):
        values["reading"] = str(values["reading"])
    if isinstance(values.get("no_onset"), str):
        with contextlib.suppress(ValueError):  # a word
            values["no_onset"] = float(values["no_onset"])
    return study.parameters(**values)


def asked_of(study: studies.Study, options: object) -> studies.Ask:
    """Builds the request to measure on each checkpoint from the given options."""
    found = given(**vars(options))

    def changed(record: Any) -> Any:  # noqa: ANN401 - a request
        names = [item.name for item in dataclasses.fields(record)]
        values = {name: found[name] for name in names if name in found}
        if "shifts" in values:
            values["shifts"] = tuple(read_grid(values["shifts"]))
        if "budget" in names:
            values["budget"] = changed(record.budget)
        return dataclasses.replace(record, **values)

    match study.ask:
        case studies.AskStudy() as ask:
            return dataclasses.replace(ask, study=changed(ask.study))
        case studies.AskScore() as ask:
            with as_usage("--shift"):
                shift = parse(found["shift"]) if "shift" in found else ask.shift
            return dataclasses.replace(ask, shift=shift, protocol=changed(ask.protocol))
    raise TypeError(f"the {study.name} study measures nothing")
