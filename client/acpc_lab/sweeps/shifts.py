"""Reads the visual shifts of a sweep file: short forms, grids, or parameters by name."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from acpc.contract import KINDS, did_you_mean, from_plain, kind_named, parse_grid
from acpc_client import Perturbation
from acpc_client.errors import ArgumentError

from acpc_lab.sweeps.reading import found, known_keys

_MAX_NAMES = 8


def read_shifts(value: object) -> tuple[Perturbation, ...]:
    """Reads every shift of a list, severities one by one.

    Raises ArgumentError: An unknown kind or parameter, a bad value, or a shift that stands twice.
    """
    if not isinstance(value, list | tuple) or not value:
        raise found(value, "a list with at least one item")
    read: dict[str, Perturbation] = {}
    for index, item in enumerate(value):
        for shift in _read_item(item, f"[{index}]"):
            if str(shift) in read:
                raise ArgumentError(f"[{index}]", f"{shift} stands here a second time; keep one")
            read[str(shift)] = shift
    return tuple(read.values())


def _read_item(item: object, at: str) -> Iterator[Perturbation]:
    if isinstance(item, str):
        # YAML reads "- blur:[9, 15]" without a space as text.
        yield from _short(re.sub(r"[\[\]\s]", "", item), at)
        return
    if not isinstance(item, Mapping) or len(item) != 1:
        raise found(item, "one kind with its severities, for example gaussian_noise: [0.02]", at)
    ((kind, value),) = item.items()
    at = f"{at}.{kind}"
    several = isinstance(value, list | tuple)
    for index, severity in enumerate(value if several else [value]):
        place = f"{at}[{index}]" if several else at
        if isinstance(severity, Mapping):
            yield from _by_name(str(kind), severity, place)
        elif isinstance(severity, str | int | float) and not isinstance(severity, bool):
            yield from _short(f"{kind}:{severity}", place)
        else:
            raise found(severity, f"a severity of {kind}, or its parameters by name", place)


def _short(text: str, at: str) -> list[Perturbation]:
    try:
        return parse_grid(text)
    except ArgumentError as error:
        raise ArgumentError(at, error.description) from error


def _by_name(kind: str, given: Mapping[str, Any], at: str) -> Iterator[Perturbation]:
    """Yields shifts by parameters: lists are severities, several lists all combinations."""
    cls = KINDS.get(kind_named(kind))
    if cls is None:
        guess = did_you_mean(kind, KINDS, f"wanted one of {', '.join(KINDS)}")
        raise ArgumentError(at, f"found the kind {kind!r}; {guess}")
    fields = dataclasses.fields(cls)
    bare = [x for x in fields if x.default is dataclasses.MISSING]
    required = [x.name for x in bare if x.default_factory is dataclasses.MISSING]
    parameters = known_keys(given, [item.name for item in fields], required, at)
    choices = [
        [(name, _plain(item)) for item in (value if isinstance(value, list) else [value])]
        for name, value in parameters.items()
    ]
    for combination in itertools.product(*choices):
        yield from_plain(cls, dict(combination), at)


def _plain(value: object) -> object:
    """A parameter; the numbers of a mapping as floats, as a request has them."""
    if not isinstance(value, Mapping):
        return value
    return {k: float(x) if type(x) is int else x for k, x in value.items()}
