"""Compares documents number by number: every leaf with its path."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

ABSENT = object()
"""What a document has at a path that it lacks."""
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


def named(path: Path) -> str:
    """A path as errors write it."""
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in path)[1:]


def in_short(value: object) -> str:
    """A leaf as JSON, of which the end is left out where it is long."""
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
