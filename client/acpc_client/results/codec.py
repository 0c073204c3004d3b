"""Takes records apart into plain values and arrays, and puts them together again by type hints."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING
from datetime import datetime
from typing import Any

import numpy as np
from acpc.contract import ArgumentError, Array, joined

Arrays = dict[str, Array]
_NO_NUMBERS = ("nan", "inf", "-inf")
_WANTED: dict[Any, str] = {
    Mapping: "an object", list: "a list", str: "a text", bool: "true or false",
    int: "an integer", int | float: "a number",
}  # fmt: skip


def encode(value: Any, path: str, arrays: Arrays) -> Any:  # noqa: ANN401 - any field
    """Turns a value into plain data; arrays go into ``arrays``, their paths in their places.

    Floats that JSON cannot hold are written as text ("nan", "inf"). A tuple of enums, of which
    there is one per anchor, becomes an array of their names.
    """
    plain = value
    match value:
        case enum.Enum():
            plain = value.name.lower()
        case np.ndarray():
            arrays[path], plain = value, path
        case tuple() if value and all(isinstance(item, enum.Enum) for item in value):
            arrays[path], plain = np.array([item.name.lower() for item in value]), path
        case tuple() | list():
            plain = [encode(item, f"{path}[{i}]", arrays) for i, item in enumerate(value)]
        case Mapping():
            plain = {key: encode(item, f"{path}.{key}", arrays) for key, item in value.items()}
        case float() if not math.isfinite(value):
            plain = str(value)
        case datetime():
            plain = value.isoformat()
        case _ if dataclasses.is_dataclass(value):
            named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            plain = encode(named, path, arrays)
        case _ if callable(getattr(value, "to_dict", None)):  # an error
            plain = value.to_dict()
    return plain


def decode(kind: Any, plain: object, arrays: Mapping[str, Array], path: str = "") -> Any:  # noqa: ANN401
    """The value of type ``kind`` that ``encode``, or ``Record.to_dict``, made plain.

    None among numbers is NaN. Fields that a newer release added are passed over; where an older
    one lacked a field, it has its default, or None.

    Raises ArgumentError: A value is missing or not of its type; names its path, which begins with
    ``path``.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    value = plain
    if kind is Any:
        pass
    elif origin in (types.UnionType, typing.Union):
        (wanted,) = (item for item in inner if item is not types.NoneType)
        value = None if plain is None else decode(wanted, plain, arrays, path)
    elif origin is np.ndarray:
        (dtype,) = typing.get_args(inner[1])
        value = _held(plain, arrays, path) if isinstance(plain, str) else _array(plain, dtype, path)
    elif origin is tuple:
        items = _held(plain, arrays, path).tolist() if isinstance(plain, str) else plain
        each = enumerate(_checked(items, list, path))
        value = tuple(decode(inner[0], item, arrays, f"{path}[{i}]") for i, item in each)
    elif origin is not None and issubclass(origin, Mapping):
        named = _checked(plain, Mapping, path).items()
        value = {key: decode(inner[1], item, arrays, f"{path}[{key!r}]") for key, item in named}
    elif dataclasses.is_dataclass(kind):
        value = _record(kind, plain, arrays, path)
    elif issubclass(kind, enum.Enum):
        value = _member(kind, plain, path)
    elif kind is float:
        value = _float(plain, path)
    elif kind is datetime:
        value = _time(plain, path)
    else:
        value = _checked(plain, kind, path)
    return value


@functools.cache
def _hints(kind: object) -> dict[str, object]:
    return typing.get_type_hints(kind)


def _record(kind: Any, plain: object, arrays: Mapping[str, Array], path: str) -> object:  # noqa: ANN401
    values = {}
    named = _checked(plain, Mapping, path)
    for field in dataclasses.fields(kind):
        hint, below = _hints(kind)[field.name], joined(path, field.name)
        if field.name in named:
            values[field.name] = decode(hint, named[field.name], arrays, below)
        elif field.default is MISSING and field.default_factory is MISSING:
            if types.NoneType not in typing.get_args(hint):
                raise ArgumentError(below, "is missing")
            values[field.name] = None
    try:
        return kind(**values)
    except ArgumentError as error:
        raise error.below(path) from error


def _checked(plain: object, kind: Any, path: str) -> Any:  # noqa: ANN401
    """The value, when it is of this type; a bool is no number."""
    if isinstance(plain, kind) and (kind is bool or not isinstance(plain, bool)):
        return plain
    raise ArgumentError(path, f"found {plain!r:.80}, wanted {_WANTED[kind]}")


def _float(plain: object, path: str) -> float:
    if plain is None:
        return math.nan
    try:
        return float(plain if plain in _NO_NUMBERS else _checked(plain, int | float, path))
    except OverflowError as error:
        raise ArgumentError(path, f"found {plain!r:.80}, which no float64 holds") from error


def _time(plain: object, path: str) -> datetime:
    try:
        return datetime.fromisoformat(_checked(plain, str, path))
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
        wanted = "wanted a time such as 2026-11-22T07:30:00+00:00"
        raise ArgumentError(path, f"found {plain!r:.80}, {wanted}") from error


def _member(kind: type[enum.Enum], plain: object, path: str) -> enum.Enum:
    members = {member.name.lower(): member for member in kind}
    if not isinstance(plain, str) or plain not in members:
        raise ArgumentError(path, f"found {plain!r:.80}, wanted one of {', '.join(members)}")
    return members[plain]


def _held(name: str, arrays: Mapping[str, Array], path: str) -> Array:
    """The array that stands beside the document under this name."""
    if name not in arrays:
        raise ArgumentError(path, f"its array {name[:80]!r} is missing")
    return arrays[name]


def _array(plain: object, dtype: Any, path: str) -> Array:  # noqa: ANN401
    """An array from JSON: of the hint's type, or of what the values are."""
    try:
        if dtype is not Any:
            return np.array(_checked(plain, list, path), dtype)
        found = np.array(plain)
        return found.astype(np.float64) if found.dtype == object else found
    except (TypeError, ValueError, OverflowError) as error:
        wanted = "numbers" if dtype is Any else np.dtype(dtype).name
        raise ArgumentError(path, f"holds no array of {wanted}") from error
