"""Reads the visual shifts of a sweep file: short forms, grids, or parameters by name."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from acpc.contract import KINDS, did_you_mean, kind_named, parse_grid
from acpc_client import GivenViews, Perturbation
from acpc_client.errors import ArgumentError

from acpc_lab.sweeps.reading import Node

_MAX_NAMES = 8


@dataclass(frozen=True)
class Groups:
    """The groups of given views whose names fit a pattern with ``*``."""

    pattern: str
    node: Node

    def __str__(self) -> str:
        return f"{GivenViews.kind}:{self.pattern}"

    def among(self, names: Iterable[str]) -> list[Perturbation]:
        """Picks those of an anchor set, in its order; raises SweepFileError when there is none."""
        known = list(names)
        fitting = fnmatch.filter(known, self.pattern)
        if not fitting:
            has = ", ".join(known[:_MAX_NAMES]) or "none, as anchors of a dataset have"
            raise self.node.error(
                f"{self.pattern!r} fits no group of views; the anchors have {has}"
            )
        return [GivenViews(name) for name in fitting]


def read_shifts(node: Node) -> tuple[Perturbation | Groups, ...]:
    """Reads every shift of a list, severities one by one.

    Raises SweepFileError: An unknown kind or parameter, a bad value, or a shift that stands twice.
    """
    read: dict[str, Perturbation | Groups] = {}
    for item in node.items():
        for shift in _read_item(item):
            if str(shift) in read:
                raise item.error(f"{shift} stands here a second time; keep one")
            read[str(shift)] = shift
    return tuple(read.values())


def _read_item(node: Node) -> Iterator[Perturbation | Groups]:
    if isinstance(node.value, str):
        # YAML reads "- blur:[9, 15]" without a space as text.
        yield from _short(node, re.sub(r"[\[\]\s]", "", node.value))
        return
    if not isinstance(node.value, Mapping) or len(node.value) != 1:
        raise node.found("one kind with its severities, for example gaussian_noise: [0.02, 0.08]")
    ((kind, value),) = node.entries()
    for item in value.one_or_many():
        if isinstance(item.value, Mapping):
            yield from _by_name(item, kind)
        elif isinstance(item.value, str | int | float) and not isinstance(item.value, bool):
            yield from _short(item, f"{kind}:{item.value}")
        else:
            raise item.found(f"a severity of {kind}, or its parameters by name")


def _short(node: Node, text: str) -> list[Perturbation] | list[Groups]:
    kind, _, pattern = text.partition(":")
    if kind == GivenViews.kind and "*" in pattern:
        return [Groups(pattern, node)]
    try:
        return parse_grid(text)
    except ArgumentError as error:
        raise node.error(error.violations[0].description) from error


def _by_name(node: Node, kind: str) -> Iterator[Perturbation]:
    """Yields shifts by parameters: lists are severities, several lists all combinations."""
    cls = KINDS.get(kind_named(kind))
    if cls is None:
        guess = did_you_mean(kind, KINDS, f"wanted one of {', '.join(KINDS)}")
        raise node.error(f"found the kind {kind!r}; {guess}")
    fields = dataclasses.fields(cls)
    bare = [x for x in fields if x.default is dataclasses.MISSING]
    required = [x.name for x in bare if x.default_factory is dataclasses.MISSING]
    section = node.section([item.name for item in fields], required)
    hints = typing.get_type_hints(cls)
    choices = [
        [(name, _value(item, hints[name])) for item in value.one_or_many()]
        for name, value in section.items()
    ]
    for combination in itertools.product(*choices):
        try:
            yield cls(**dict(combination))
        except ArgumentError as error:
            raise node.error(error.message) from error


def _value(node: Node, kind: Any) -> Any:  # noqa: ANN401 - the type of one parameter
    if kind is int:
        return node.integer(0)
    if kind is float:
        return node.number()
    if kind is str:
        return node.text()
    if not isinstance(node.value, Mapping):
        raise node.error("cannot be written by name; use the short form, which acpc shifts shows")
    return {name: item.number() for name, item in node.entries()}
