"""Declares the range, unit and default of a field once, and checks values against them.

``bounded`` puts a range into the metadata of a dataclass field, ``check`` compares a record with
its ranges: the client before it sends a request, the server when it has read one.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from acpc.contract.errors import ArgumentError

UINT32 = 2**32 - 1
UINT64 = 2**64 - 1
SHOWN = 80
"""Characters of a rejected value that its error quotes."""

R = TypeVar("R")


@dataclass(frozen=True)
class Bounds:
    """What a field may hold; of a sequence of numbers, every entry.

    Attributes:
        ge: Smallest value.
        gt: Every value is above it.
        le: Largest value.
        lt: Every value is below it.
        min_length: Fewest characters of a text, or entries of a sequence or mapping.
        max_length: Most of them.
        unit: Of the value, for people.
    """

    ge: float = -math.inf
    gt: float = -math.inf
    le: float = math.inf
    lt: float = math.inf
    min_length: int = 0
    max_length: int | None = None
    unit: str = ""

    def holds(self, value: float) -> bool:
        """Whether a finite number lies in the range."""
        return math.isfinite(value) and self._inside(value)

    def _inside(self, value: float) -> bool:
        above = (value >= self.ge and value > self.gt) or self.gt == self.ge == value == -math.inf
        return above and value <= self.le and (value < self.lt or self.lt == math.inf)

    def wanted(self, whole: bool) -> str:
        """The range in words, for example ``a number in (0, 1]``."""
        if whole:
            return f"a whole number from {int(self.ge)} to {int(self.le)}"
        low = f"({self.gt:g}" if self.gt > self.ge else f"[{self.ge:g}"
        high = f"{self.lt:g})" if self.lt < self.le else f"{self.le:g}]"
        unit = f" {self.unit}" if self.unit else ""
        return f"a number in {low}, {high}{unit}".replace("[-inf", "(-inf").replace("inf]", "inf)")

    def wanted_length(self, what: str) -> str:
        """The range of a length in words."""
        if self.max_length is None:
            return f"at least {self.min_length} {what}"
        return f"{self.min_length} to {self.max_length} {what}"


ANY = Bounds()


def bounded(
    default: Any = MISSING,
    *,
    ge: float = -math.inf,
    gt: float = -math.inf,
    le: float = math.inf,
    lt: float = math.inf,
    unit: str = "",
) -> Any:
    """A dataclass field of a number, or of a sequence of numbers, with a range."""
    bounds = Bounds(ge=ge, gt=gt, le=le, lt=lt, unit=unit)
    return field(default=default, metadata={"bounds": bounds})


def sized(
    default: Any = MISSING,
    *,
    least: int = 0,
    most: int,
    default_factory: Any = MISSING,
) -> Any:
    """A dataclass field of a text, sequence or mapping with a range for its length."""
    metadata = {"bounds": Bounds(min_length=least, max_length=most)}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def seed_field(default: int = 0) -> Any:
    """A dataclass field of a seed, uint64."""
    return bounded(default, ge=0, le=UINT64)


def bounds_of(cls: type[Any]) -> dict[str, Bounds]:
    """The declared ranges of a record's fields, by name."""
    return {f.name: f.metadata["bounds"] for f in dataclasses.fields(cls) if "bounds" in f.metadata}


def changed(record: Any) -> dict[str, Any]:
    """The fields of a record that differ from their default, by name."""
    found = {}
    for f in dataclasses.fields(record):
        value = getattr(record, f.name)
        default = f.default if f.default_factory is MISSING else f.default_factory()
        if value != default:
            found[f.name] = value
    return found


def given(cls: type[R], **values: Any) -> R:
    """A record with the values that are not None, and the contract's defaults for the others."""
    return cls(**{name: value for name, value in values.items() if value is not None})


def normalise(record: Any) -> None:
    """Makes the values of a new record what its hints say, where they mean the same.

    Whole numbers of float fields become floats, sequences tuples, NumPy's numbers Python's, and an
    enum's unspecified value the field's default. Called by ``__post_init__``.
    """
    for f in dataclasses.fields(record):
        value, hint = getattr(record, f.name), _hints(type(record))[f.name]
        plain = value
        if "array" in f.metadata:
            plain = value if value is None else f.metadata["array"].converted(value)
        elif isinstance(value, enum.IntEnum):
            plain = f.default if value == 0 and isinstance(f.default, enum.IntEnum) else value
        elif isinstance(value, bool | str):
            continue
        elif float in (hint, *get_args(hint)) and isinstance(value, Real):
            plain = float(value)
        elif isinstance(value, Integral):
            plain = int(value)
        elif get_origin(hint) is tuple and isinstance(value, Iterable):
            number = float if get_args(hint)[0] is float else lambda item: item
            plain = tuple(number(item) for item in value)
        if plain is not value:
            object.__setattr__(record, f.name, plain)


def check(record: Any, path: str = "") -> None:
    """Checks every field of a record, and of the records in it, against its range.

    A record with a method ``check_rules()`` has rules between its fields; they are checked last.

    Args:
        record: A frozen dataclass of the contract.
        path: Path of the record in its request, for the error.

    Raises:
        ArgumentError: A value outside its range; names its field, what was found and what is
            wanted.
    """
    try:
        for f in dataclasses.fields(record):
            _check_field(record, f, getattr(record, f.name))
        if hasattr(record, "check_rules"):
            record.check_rules()
    except ArgumentError as error:
        raise (error.below(path) if path else error) from error


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def _is_whole(hint: Any) -> bool:
    return hint is int or int in get_args(hint)


def _check_field(record: Any, f: dataclasses.Field[Any], value: Any) -> None:
    """Checks the value of one field; its errors name it as the message does."""
    if value is None or isinstance(value, bool):
        return
    name, bounds = f.metadata.get("wire") or f.name, f.metadata.get("bounds", ANY)
    whole = _is_whole(_hints(type(record))[f.name])
    if isinstance(value, np.ndarray):
        if "array" in f.metadata:
            f.metadata["array"].check(value, name)
    elif isinstance(value, int | float):
        _check_number(value, name, bounds, whole)
    elif isinstance(value, str):
        _check_length(value, name, bounds, "characters")
    elif isinstance(value, Mapping):
        _check_length(value, name, bounds, "entries")
        for key, item in value.items():
            _check_number(item, f"{name}.{key}", bounds, whole)
    elif isinstance(value, Sequence):
        _check_length(value, name, bounds, "entries")
        for index, item in enumerate(value):
            if isinstance(item, int | float):
                _check_number(item, name, bounds, whole)
            else:
                check(item, f"{name}[{index}]")
    elif dataclasses.is_dataclass(value):
        check(value, _member(record, name, value))


def _member(record: Any, name: str, value: Any) -> str:
    """Name of the field of a oneof that holds a record; of any other field its own."""
    oneof = getattr(record, "message_type", None)
    oneof = oneof and oneof.DESCRIPTOR.oneofs_by_name.get(name)
    if oneof is None:
        return name
    held = value.message_type.DESCRIPTOR
    member: str = next(field.name for field in oneof.fields if field.message_type is held)
    return member


def _check_number(value: Any, name: str, bounds: Bounds, whole: bool) -> None:
    fits = isinstance(value, int) if whole else isinstance(value, int | float)
    if not fits or not bounds.holds(value):
        raise ArgumentError(name, f"found {value!r:.{SHOWN}}, wanted {bounds.wanted(whole)}")


def _check_length(value: Any, name: str, bounds: Bounds, what: str) -> None:
    most = math.inf if bounds.max_length is None else bounds.max_length
    if not bounds.min_length <= len(value) <= most:
        raise ArgumentError(name, f"found {len(value)} {what}, wanted {bounds.wanted_length(what)}")
