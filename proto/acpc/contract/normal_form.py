"""Makes the values of a new record what its hints, and a reading of the paper, say."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping, Sized
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from acpc.contract.enums import Reading
from acpc.contract.fields import Declared, check_length, declared
from acpc.contract.plain import to_plain

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R")
E = TypeVar("E", bound=enum.IntEnum)


def normalise(record: object) -> None:
    """Makes the values of a new record what its hints say, where they mean the same.

    Whole numbers of float fields become floats, sequences tuples, NumPy's numbers Python's. None,
    an enum's unspecified value, and an empty sequence where one is needed are the field's default.
    Called by ``__post_init__``.

    Raises ArgumentError: A sequence is too long to be converted; names its field.
    """
    for f in declared(type(record)):
        value = getattr(record, f.name)
        if value is f.usual or (type(value) is f.hint and not isinstance(value, enum.Enum)):
            continue
        plain = _normal(f, value)
        if plain is not value:
            object.__setattr__(record, f.name, plain)


def _normal(f: Declared, value: Any) -> Any:
    if f.axes:
        return value if value is None else f.axes.converted(value)
    if f.default and not f.optional:
        empty = f.bounds.min_length > 0 and isinstance(value, tuple | list) and not value
        if value is None or empty:
            return f.default()
        if isinstance(value, Integral) and value == 0 and isinstance(f.default(), enum.IntEnum):
            return f.default()
    if f.item:
        return _as_tuple(f, value)
    if float in f.kinds:
        return _as_float(value)
    whole = int in f.kinds and isinstance(value, Integral) and not isinstance(value, bool)
    return int(value) if whole else value


def _as_float(value: object) -> object:
    if not isinstance(value, Real) or isinstance(value, bool):
        return value
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return -math.inf if value < 0 else math.inf


def _as_tuple(f: Declared, value: object) -> object:
    """A sequence as a tuple, its numbers as floats where those are wanted."""
    done = isinstance(value, tuple) and (f.item is not float or {*map(type, value)} <= {float})
    if done or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return value
    try:
        if isinstance(value, Sized):
            check_length(len(value), f.wire, f.bounds)
        return tuple(map(_as_float, value) if f.item is float else value)
    except TypeError:  # an array of rank 0
        return value


def reading_field() -> Reading:
    """The dataclass field ``reading``, which decides those of ``follows``."""
    return dataclasses.field(default=Reading.SERVER_DEFAULT, metadata={"paper": Reading.PAPER})


def follows(*, paper: E, released: E) -> E:
    """A dataclass field of an enum, 0 unless it is given: ``resolved`` sets it by the reading."""
    return dataclasses.field(
        default=type(paper)(0), metadata={"paper": paper, "released": released}
    )


def resolved(record: R, fallback: Reading = Reading.PAPER) -> R:
    """The record with its reading, ``fallback`` where it is open, and what follows it decided."""
    reading = record.reading or fallback  # type: ignore[attr-defined]
    values = {
        f.name: f.metadata[reading.name.lower()]
        for f in dataclasses.fields(record)  # type: ignore[arg-type]
        if "released" in f.metadata and not getattr(record, f.name)
    }
    return dataclasses.replace(record, reading=reading, **values)  # type: ignore[type-var]


def digested(record: DataclassInstance) -> dict[str, object]:
    """Writes a resolved record's parameters as their digest takes them: plain values, as JSON.

    A field that a later release added, which its metadata's ``paper`` says, is left out where it
    has that value: digests of different releases can be compared.
    """
    plain: dict[str, object] = to_plain(record)
    for f in dataclasses.fields(record):
        if "paper" in f.metadata and getattr(record, f.name) == f.metadata["paper"]:
            del plain[f.metadata.get("json", f.name)]
    return plain
