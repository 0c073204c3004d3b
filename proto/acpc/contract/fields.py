"""Declares the range, unit and default of a field once, and checks values against them.

``bounded`` puts a range into the metadata of a dataclass field, ``check`` compares a record with
its ranges: the client before it sends a request, the server when it has read one.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache
from typing import (
    Any,
    ClassVar,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from acpc.contract.errors import ArgumentError

UINT32 = 2**32 - 1
UINT64 = 2**64 - 1
SHOWN = 80  # characters of a rejected value that its error quotes

P = ParamSpec("P")
R = TypeVar("R")
Convert = Callable[[Any], object]


def cached(function: Callable[P, R]) -> Callable[P, R]:
    """``functools.cache`` of a function of classes, which mypy does not take for hashable."""
    return cache(function)  # type: ignore[return-value]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen:
    """Makes a frozen dataclass of every class below, with these arguments of ``dataclass``."""

    _made: ClassVar[dict[str, bool]] = {}

    def __init_subclass__(cls, **made: bool) -> None:
        super().__init_subclass__()
        cls._made = {**cls._made, **made}
        dataclass(frozen=True, **cls._made)(cls)


@dataclass(frozen=True)
class Bounds:
    """Bounds of a field's value; of a sequence of numbers, of every entry.

    A length counts the characters of a text, or the entries of a sequence or mapping.
    """

    ge: float = -math.inf
    gt: float = -math.inf
    le: float = math.inf
    lt: float = math.inf
    min_length: int = 0
    max_length: int | None = None
    unit: str = ""  # of the value, for people

    def holds(self, value: float) -> bool:
        """Whether a number that a float can hold lies in the range."""
        inside = self.ge <= value <= self.le and self.gt < value < self.lt
        return inside and abs(value) <= sys.float_info.max

    def hold_all(self, values: Sequence[float]) -> bool:
        """Whether numbers lie in the range, for sure; False: check each by itself."""
        ends = not values or (self.holds(min(values)) and self.holds(max(values)))
        return ends and math.isfinite(sum(values))  # NaN makes the sum NaN

    def wanted(self, whole: bool) -> str:
        """The range in words, for example ``a number in (0, 1]``."""
        if whole:
            return f"a whole number from {int(self.ge)} to {int(self.le)}"
        low = f"({self.gt:g}" if self.gt > self.ge else f"[{self.ge:g}"
        high = f"{self.lt:g})" if self.lt < self.le else f"{self.le:g}]"
        unit = f" {self.unit}" if self.unit else ""
        return f"a number in {low}, {high}{unit}".replace("[-inf", "(-inf").replace("inf]", "inf)")


ANY = Bounds()


def bounded(
    default: object = MISSING,
    *,
    ge: float = -math.inf,
    gt: float = -math.inf,
    le: float = math.inf,
    lt: float = math.inf,
    least: int = 0,
    most: int | None = None,
    unit: str = "",
    **more: object,
) -> Any:
    """Declares a range, and one of lengths from ``least`` to ``most``; ``more`` is metadata."""
    bounds = Bounds(ge, gt, le, lt, min_length=least, max_length=most, unit=unit)
    return field(default=default, metadata={"bounds": bounds, **more})


def seed_field() -> int:
    """Declares a seed, uint64, that is 0 unless it is given."""
    seed: int = bounded(0, ge=0, le=UINT64)
    return seed


def bounds_of(cls: type) -> dict[str, Bounds]:
    """Returns the declared ranges of a record's fields, by name."""
    return {f.name: f.metadata["bounds"] for f in dataclasses.fields(cls) if "bounds" in f.metadata}


def _default_of(f: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if f.default_factory is not MISSING:
        return f.default_factory
    return None if f.default is MISSING else lambda: f.default


class Declared(NamedTuple):
    """What a record says of one of its fields."""

    name: str
    wire: str  # name of the message's field, which errors have
    hint: Any
    kinds: tuple[Any, ...]  # members of a union, None apart
    optional: bool
    item: Any  # type of the entries of a sequence; None: it is none
    whole: bool  # whether it holds whole numbers
    bounds: Bounds
    usual: object  # its default, which is in range; the class where it has none, or makes it
    default: Callable[[], Any] | None  # makes its default; None: it has none
    axes: Any  # of an array


@cached
def declared(cls: type) -> tuple[Declared, ...]:
    """Returns what a record says of its fields."""
    hints = get_type_hints(cls)
    return tuple(
        Declared(
            name=f.name,
            wire=f.metadata.get("wire") or f.name,
            hint=(hint := hints[f.name]),
            kinds=parts_of(hint),
            optional=type(None) in get_args(hint),
            item=get_args(hint)[0] if get_origin(hint) is tuple else None,
            whole=hint is int or int in get_args(hint),
            bounds=f.metadata.get("bounds", ANY),
            usual=cls if f.default is MISSING else f.default,
            default=_default_of(f),
            axes=f.metadata.get("array"),
        )
        for f in dataclasses.fields(cls)
    )


def changed(record: object) -> dict[str, Any]:
    """Returns the fields of a record that differ from their default, by name."""
    values = [(f, getattr(record, f.name)) for f in declared(type(record))]
    return {f.name: x for f, x in values if f.default is None or x != f.default()}


def shared(record: object, cls: Any) -> dict[str, Any]:
    """Returns what a record has of the fields of a class, by name."""
    names = (f.name for f in dataclasses.fields(cls))
    return {name: getattr(record, name) for name in names if hasattr(record, name)}


def check(record: object, path: str = "") -> None:
    """Checks every field of a record and of the records in it, then its ``check_rules()``.

    Raises ArgumentError: A value is outside its range; names its field below ``path``, what was
    found and what is wanted.
    """
    try:
        for f in declared(type(record)):
            value = getattr(record, f.name)
            if value is f.usual or f.hint is bool or (value is None and f.optional):
                continue
            _check_field(type(record), f, value)
        if hasattr(record, "check_rules"):
            record.check_rules()
    except ArgumentError as error:
        raise (error.below(path) if path else error) from error


def parts_of(hint: object) -> tuple[Any, ...]:
    """The members of a union, None apart, or the hint itself."""
    union = get_origin(hint) in (types.UnionType, Union)
    return tuple(part for part in get_args(hint) if part is not type(None)) if union else (hint,)


_WORDS = {
    "str": "a text",
    "bytes": "bytes",
    "int": "a whole number",
    "float": "a number",
    "ndarray": "an array",
    "tuple": "a sequence",
}


def _check_field(record: type, f: Declared, value: Any) -> None:
    """Checks the value of one field."""
    name, bounds, whole = f.wire, f.bounds, f.whole
    _check_type(value, name, f.hint)
    if f.axes:
        f.axes.check(value, name)
    elif isinstance(value, tuple | list):
        check_length(len(value), name, bounds)
        if {*map(type, value)} <= {f.item} <= {int, float} and bounds.hold_all(value):
            return
        for index, item in enumerate(value):
            if isinstance(item, int | float):
                _check_number(item, name, bounds, whole)
                continue
            _check_type(item, f"{name}[{index}]", f.item)
            if not getattr(item, "checks_itself", False):
                check(item, f"{name}[{index}]")
    elif hasattr(value, "__dataclass_fields__"):
        if not getattr(value, "checks_itself", False):
            check(value, _member(record, name, type(value)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, name, bounds, whole)
    elif isinstance(value, str | bytes):
        what = "characters" if isinstance(value, str) else "bytes"
        check_length(len(value), name, bounds, what)
    elif isinstance(value, Mapping):
        check_length(len(value), name, bounds)
        for key, item in value.items():
            _check_number(item, f"{name}.{key}", bounds, whole)


def _check_type(value: object, name: str, hint: object) -> None:
    """Raises ArgumentError for a value of another kind than the hint's; ranges come later."""
    kinds, accepted = _accepted(hint)
    if isinstance(value, accepted) and (type(value) is not bool or bool in kinds):
        return
    wanted = " or ".join(_WORDS.get(kind.__name__, kind.__name__) for kind in kinds)
    if hasattr(kinds[0], "checks_itself"):
        wanted = "a perturbation"
    raise ArgumentError(name, f"found {value!r:.{SHOWN}}, wanted {wanted}")


@cached
def _accepted(hint: object) -> tuple[tuple[type, ...], tuple[type, ...]]:
    """Returns the types that a hint names, and those whose values need a further check."""
    kinds = tuple(get_origin(part) or part for part in parts_of(hint))
    numbers = any(issubclass(kind, int | float) for kind in kinds)
    return kinds, (*kinds, *((int, float) if numbers else ()), *((list,) if tuple in kinds else ()))


@cached
def _member(record: type, name: str, value: Any) -> str:
    """Name of the field of a oneof that holds a record; of any other field its own."""
    oneof = getattr(record, "message_type", None)
    oneof = oneof and oneof.DESCRIPTOR.oneofs_by_name.get(name)
    if oneof is None:
        return name
    held = value.message_type.DESCRIPTOR
    member: str = next(field.name for field in oneof.fields if field.message_type is held)
    return member


def _check_number(value: object, name: str, bounds: Bounds, whole: bool) -> None:
    if not isinstance(value, int if whole else (int, float)) or not bounds.holds(value):
        raise ArgumentError(name, f"found {value!r:.{SHOWN}}, wanted {bounds.wanted(whole)}")


def check_length(length: int, name: str, bounds: Bounds, what: str = "entries") -> None:
    """Raises ArgumentError, which names the field, when a length is out of its range."""
    least, most = bounds.min_length, bounds.max_length
    if length < least or (most is not None and length > most):
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        raise ArgumentError(name, f"found {length} {what}, wanted {wanted} {what}")
