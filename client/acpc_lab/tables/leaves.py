"""Compares documents number by number: every leaf with its path."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_ABSENT = object()  # what a document has at a path that it lacks
Path = tuple[str | int, ...]


def leaves(value: Any, *path: str | int) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401 - any JSON value
    """Every leaf of a JSON value with its keys and indices; what is empty is a leaf."""
    match value:
        case dict() if value:
            for key, item in value.items():
                yield from leaves(item, *path, key)
        case list() if value:
            for index, item in enumerate(value):
                yield from leaves(item, *path, index)
        case _:
            yield path, value


def gap(found: object, wanted: object, nothing: float = 0.0) -> float:
    """Relative difference of two numbers, 0 up to ``nothing``; else 0 where equal, or infinity."""
    pair = (found, wanted)
    if all(isinstance(x, int | float) and not isinstance(x, bool) for x in pair):
        numbers = [float(x) for x in pair]  # type: ignore[arg-type]
        apart = abs(numbers[0] - numbers[1])
        return apart / max(map(abs, numbers)) if apart > nothing else 0.0
    return 0.0 if type(found) is type(wanted) and found == wanted else math.inf


class Compared(NamedTuple):
    """Two documents, value by value.

    Attributes:
        values: How many were compared.
        differ: How many of them differ by more than allowed.
        largest: Largest relative difference of two numbers; infinite: of anything else.
        first: The first that differs, in words; None where none does.
    """

    values: int
    differ: int
    largest: float
    first: str | None


def compared(
    found: Mapping[Path, Any], wanted: Mapping[Path, Any], within: float, nothing: float = 0.0
) -> Compared:
    """Compares two documents by their ``leaves``; ``within`` is a relative difference."""
    differ, largest, first = 0, 0.0, None
    paths = found | wanted  # type: ignore[operator]
    for path in paths:
        ours, theirs = found.get(path, _ABSENT), wanted.get(path, _ABSENT)
        apart = gap(ours, theirs, nothing)
        largest = max(largest, apart)
        if apart > within:
            differ += 1
            first = first or f"{named(path)}: found {_short(ours)}, wanted {_short(theirs)}"
    return Compared(len(paths), differ, largest, first)


def named(path: Path) -> str:
    """A path as errors write it."""
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in path)[1:]


def _short(value: object) -> str:
    """A leaf as JSON, of which the end is left out where it is long."""
    text = "nothing" if value is _ABSENT else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
