"""Short text forms of perturbations, and grids of severities."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, get_type_hints

from acpc.contract.compositions import KINDS, Composition, Perturbation
from acpc.contract.errors import ArgumentError
from acpc.contract.fields import bounds_of
from acpc.contract.help import did_you_mean
from acpc.contract.perturbations import Background, Identity, plate_from
from acpc.contract.visual_changes import GivenViews

GRADED = {kind: cls for kind, cls in KINDS.items() if cls.examples}
"""The kinds that have a severity to choose, and so a mild, a medium and a strong example."""
_SHORTER = {"blur": "gaussian_blur"}
_MAX_GRID = 256


def _choice(kind: str) -> str:
    return f"{kind}:" + "@".join(f.name.upper() for f in fields(GRADED[kind])[:3])


CHOICES = (*map(_choice, GRADED), Identity.kind, f"{GivenViews.kind}:GROUP")
LISTED = "acpc list shifts has all"
EVERYDAY = (
    "gaussian_noise:0.02", "resize:0.5", "jpeg:50", "brightness:-0.2", "color_jitter:0.2",
    "shadow:0.3", "knocked_camera:2", "distractor:0.1",
)  # fmt: skip
"""What ``everyday`` stands for: changes under which a person still sees the same scene."""


def severity_range(cls: type[Perturbation]) -> str:
    """The first parameter of a kind and its range in words."""
    if not cls.examples:
        return "group of the anchor set" if cls is GivenViews else "-"
    first = fields(cls)[0].name
    return f"{first} {bounds_of(cls)[first].wanted(get_type_hints(cls)[first] is int)}"


def example(cls: type[Perturbation]) -> str:
    """A usual change of a kind in its short form."""
    if cls is GivenViews:
        return f"{cls.kind}:camera-2"
    return f"{cls.kind}:{cls.examples[1]}" if cls.examples else cls.kind


def examples_of(kind: str) -> list[Perturbation]:
    """A mild, a medium and a strong change of a kind.

    Raises ArgumentError: No such kind, or one without severity.
    """
    cls = _graded(kind)
    return [parse(f"{cls.kind}:{parameters}") for parameters in cls.examples]


def _graded(kind: str) -> type[Any]:
    cls = GRADED.get(kind_named(kind))
    if cls is None:
        raise ArgumentError("kind", _unknown(kind))
    return cls


def kind_named(name: str) -> str:
    """The kind of the contract that a name or its short form stands for."""
    return _SHORTER.get(name, name)


def severity_grid(kind: str, values: Iterable[float], **others: object) -> list[Perturbation]:
    """One perturbation for each value of a kind's first parameter.

    Args:
        kind: Name of the kind in the contract, for example ``"gaussian_noise"``.
        values: Values of its first parameter, for example sigmas.
        **others: Its other parameters, for example the ``angle`` of ``motion_blur``.

    Raises ArgumentError: No such kind, a value out of range, or an unknown parameter.

    Example:
        >>> client.certify_pool(..., perturbations=severity_grid("defocus_blur", [1, 2, 4]))
    """
    cls = _graded(kind)
    first, *known = (f.name for f in fields(cls))
    for name in others:
        if name not in known:
            raise ArgumentError(name, f"{kind} has no such parameter; it has {first} and {known}")
    return [cls(value, **others) for value in values]


def severities_up_to(strongest: Any, steps: int) -> list[Perturbation]:
    """Changes of one kind in even steps of its first parameter, the last of which is ``strongest``.

    Steps are of six digits, of whole numbers where the parameter is one; equal ones stand once, and
    what changes nothing does not. The other parameters of ``strongest`` are those of all.

    Raises ArgumentError: The kind has no severity, ``strongest`` changes nothing, or too many
    steps.
    """
    if not 1 <= steps <= _MAX_GRID:
        raise ArgumentError("steps", f"found {steps}, wanted 1 to {_MAX_GRID}")
    nothing = unchanged(strongest)
    if strongest.changes_nothing:
        raise ArgumentError("strongest", f"{strongest} changes nothing; name the strongest change")
    first = fields(strongest)[0].name
    last, start = getattr(strongest, first), getattr(nothing, first)
    whole = get_type_hints(type(strongest))[first] is int
    made: dict[Perturbation, None] = {}
    for step in range(1, steps + 1):
        value = float(f"{start + (last - start) * step / steps:.6g}") if step < steps else last
        made[replace(strongest, **{first: round(value) if whole else value})] = None
    return [shift for shift in made if not shift.changes_nothing]


def curve_of(shift: Perturbation) -> str | None:
    """Kind and other parameters of a change, as ``motion_blur@30``; None where it has no severity.

    Changes of one curve differ by their severity alone.
    """
    if not shift.examples or shift.changes_nothing:
        return None
    kind, _, values = str(shift).partition(":")
    return kind + "".join(values.partition("@")[1:])


def unchanged(shift: Any) -> Perturbation:
    """The change of the same kind and other parameters that changes nothing.

    Raises ArgumentError: It has no severity to choose.
    """
    if not shift.examples:
        raise ArgumentError("strongest", f"{shift} has no severity to change; {LISTED}")
    nothing: Perturbation = replace(shift, **{fields(shift)[0].name: shift.neutral})
    return nothing


def parse(text: str) -> Perturbation:
    """Reads the short form of one perturbation, for example ``gaussian_noise:0.08``.

    Raises ArgumentError: The text is none of ``CHOICES``.
    """
    grid = parse_grid(text)
    if len(grid) != 1:
        raise ArgumentError("perturbation", f"found {text!r}, wanted one severity, found a grid")
    return grid[0]


def parse_grid(text: str) -> list[Perturbation]:
    """Reads the short form of one perturbation or of a grid of its severities.

    ``gaussian_noise:0.02,0.05`` lists severities, ``gaussian_noise:0.02..0.08/4`` spaces four of
    them evenly from the first to the last, and ``motion_blur:5,9@30`` gives both the angle 30.
    ``gaussian_noise:0.02,0.05+jpeg:30`` are two compositions, and ``everyday`` is ``EVERYDAY``.

    Raises ArgumentError: The text is none of ``CHOICES``.
    """
    kind, _, rest = text.partition(":")
    if kind != GivenViews.kind and len(parts := re.split(r"\+(?=[a-z])", text)) > 1:
        return _composed(text, parts)
    if text == "everyday":
        return [parse(change) for change in EVERYDAY]
    if text == Identity.kind:
        return [Identity()]
    if kind == GivenViews.kind:
        try:
            return [GivenViews(group) for group in rest.split(",")]
        except ArgumentError as error:
            raise ArgumentError("perturbation", f"found {text!r}: {error.message}") from error
    cls = GRADED.get(kind_named(kind))
    if cls is None:
        raise ArgumentError("perturbation", f"found {text!r}: {_unknown(kind)}")
    values, *others = rest.split("@")
    hints = [(f.name, get_type_hints(cls)[f.name]) for f in fields(cls)[:3]]
    (first, number), *others_of = hints
    if not values:
        raise _unreadable(text, cls, f" without its {first}")
    if len(others) > len(others_of):
        more = "second" if len(others) == 1 else "further"
        raise _unreadable(text, cls, f", but {cls.kind} has no {more} parameter")
    try:
        given = zip(others_of, others, strict=False)
        shared = {name: read(other) for (name, read), other in given}
        if cls is Background and others[:1] and others[0].endswith(".npy"):
            shared |= {"key": "", **plate_from(others[0])}
        return severity_grid(cls.kind, [number(value) for value in _values(values)], **shared)
    except ArgumentError as error:  # out of range
        raise ArgumentError("perturbation", f"found {text!r}: {error.message}") from error
    except (ValueError, ZeroDivisionError) as error:
        raise _unreadable(text, cls) from error


def _composed(text: str, parts: list[str]) -> list[Perturbation]:
    """All combinations of what the parts list."""
    read = [parse_grid(part) for part in parts]
    if math.prod(map(len, read)) > _MAX_GRID:
        raise ArgumentError("perturbation", f"found {text!r}, wanted at most {_MAX_GRID} of them")
    try:
        return [Composition(found) for found in itertools.product(*read)]  # type: ignore[arg-type]
    except ArgumentError as error:
        raise ArgumentError("perturbation", f"found {text!r}: {error.message}") from error


def _values(text: str) -> list[str]:
    start, dots, rest = text.partition("..")
    if not dots:
        return text.split(",")
    stop, slash, count = rest.partition("/")
    low, high, steps = Fraction(start), Fraction(stop), int(count) - 1
    if not slash or not 1 <= steps < _MAX_GRID:
        raise ValueError(f"{count} severities")
    points = [low + (high - low) * step / steps for step in range(steps + 1)]
    return [str(p.numerator if p.denominator == 1 else float(p)) for p in points]


def _unknown(kind: str) -> str:
    if kind == Identity.kind:
        return "identity has no severity"
    guess = did_you_mean(kind, [*GRADED, *_SHORTER, Identity.kind, GivenViews.kind, "everyday"])
    return " ".join(filter(None, [f"no shift is called {kind!r};", guess, LISTED]))


def _unreadable(text: str, cls: type[Perturbation], why: str = "") -> ArgumentError:
    """Makes the error for a text that names a known kind; words what the kind needs."""
    wanted = f"{_choice(cls.kind)}, {severity_range(cls)}"
    if set(",.") & set(text.partition(":")[2]):
        wanted += f"; a grid is {cls.kind}:A,B,C or {cls.kind}:FIRST..LAST/COUNT"
    return ArgumentError(
        "perturbation", f"found {text!r}{why}, wanted {wanted}; for example {example(cls)}"
    )
