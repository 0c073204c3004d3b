"""Makes the values of a new record what its hints, and a reading of the paper, say."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping, Sized
from dataclasses import MISSING
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypeVar, get_args, get_origin

from acpc.contract.enums import Reading
from acpc.contract.fields import ANY, Bounds, Convert, cached, check_length, hints_of, optional
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
    for name, exact, convert in _conversions(type(record)):
        value = getattr(record, name)
        if type(value) is not exact:
            plain = convert(value)
            if plain is not value:
                object.__setattr__(record, name, plain)


@cached
def _conversions(cls: type) -> list[tuple[str, object, Convert]]:
    """For each field its name, the type whose values need no conversion, and the conversion."""
    found: list[tuple[str, object, Convert]] = []
    for f in dataclasses.fields(cls):
        hint, bounds = hints_of(cls)[f.name], f.metadata.get("bounds", ANY)
        if axes := f.metadata.get("array"):
            found.append((f.name, type(None), axes.converted))
            continue
        exact, convert = _conversion(hint, f.metadata.get("wire") or f.name, bounds)
        has_default = f.default is not MISSING or f.default_factory is not MISSING
        if has_default and not optional(hint):
            needed = get_origin(hint) is tuple and bounds.min_length > 0
            if isinstance(f.default, enum.IntEnum):
                exact, convert = None, partial(_specified, f.default)
            else:
                exact = None if needed else exact
                convert = partial(_or_default, f, needed, convert)
        elif convert is _same:
            continue
        found.append((f.name, exact, convert))
    return found


def _conversion(hint: object, name: str, bounds: Bounds) -> tuple[object, Convert]:
    if float in (hint, *get_args(hint)) and get_origin(hint) is not tuple:
        return float, _as_float
    if get_origin(hint) is tuple:
        (item, *_) = get_args(hint)
        exact, convert = (None, _as_floats) if item is float else (tuple, _as_tuple)
        return exact, partial(convert, name, bounds)
    if hint is int or int in get_args(hint):
        return int, _as_int
    return get_origin(hint) or hint, _same


_FLOATS = frozenset({float})


def _same(value: object) -> object:
    return value


def _specified(default: enum.IntEnum, value: object) -> object:
    return default if value is None or value == 0 else value


def _or_default(
    f: dataclasses.Field[object], needed: bool, convert: Convert, value: object
) -> object:
    """The field's default in place of None, and of an empty sequence where one is needed."""
    if value is None or (needed and isinstance(value, tuple | list) and not value):
        return f.default if f.default_factory is MISSING else f.default_factory()
    return convert(value)


def _as_float(value: object) -> object:
    if not isinstance(value, Real) or isinstance(value, bool):
        return value
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return -math.inf if value < 0 else math.inf


def _as_int(value: object) -> object:
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _as_tuple(name: str, bounds: Bounds, value: object) -> object:
    if isinstance(value, tuple | str | Mapping) or not isinstance(value, Iterable):
        return value
    try:
        if isinstance(value, Sized):
            check_length(len(value), name, bounds)
        return tuple(value)
    except TypeError:  # an array of rank 0
        return value


def _as_floats(name: str, bounds: Bounds, value: object) -> object:
    if type(value) is tuple and _FLOATS.issuperset(map(type, value)):
        return value
    plain = _as_tuple(name, bounds, value)
    if not isinstance(plain, tuple):
        return plain
    check_length(len(plain), name, bounds)
    return tuple(map(_as_float, plain))


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
