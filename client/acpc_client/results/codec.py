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
from numpy.typing import NDArray

from acpc_client.errors import ArgumentError

Arrays = dict[str, NDArray[Any]]


def encode(value: Any, path: str, arrays: Arrays) -> Any:  # noqa: ANN401 - any field
    """The plain form of a value, in which each array is its path; the arrays go into ``arrays``.

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


def decode(kind: Any, plain: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    """The value of type ``kind`` that ``encode``, or ``Record.to_dict``, made plain.

    None among numbers is NaN. Fields that a newer release added are passed over; where an older
    one lacked a field, it has its default, or None.

    Raises:
        ArgumentError: The value is not of this type.
    """
    try:
        return _decode(kind, plain, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError("path", f"holds no {kind.__name__}: {error!r}") from error


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    return typing.get_type_hints(kind)


def _decode(kind: Any, plain: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    value = plain
    if kind is Any:
        pass
    elif origin in (types.UnionType, typing.Union):
        (wanted,) = (item for item in inner if item is not types.NoneType)
        value = None if plain is None else _decode(wanted, plain, arrays)
    elif origin is np.ndarray:
        (dtype,) = typing.get_args(inner[1])
        value = arrays[plain] if isinstance(plain, str) else _array(plain, dtype)
    elif origin is tuple:
        items = arrays[plain].tolist() if isinstance(plain, str) else plain
        value = tuple(_decode(inner[0], item, arrays) for item in items)
    elif origin is not None and issubclass(origin, Mapping):
        value = {key: _decode(inner[1], item, arrays) for key, item in plain.items()}
    elif dataclasses.is_dataclass(kind):
        value = _record(kind, plain, arrays)
    elif issubclass(kind, enum.Enum):
        value = kind[plain.upper()]
    elif issubclass(kind, datetime):
        value = kind.fromisoformat(plain)
    elif kind is float and plain is None:
        value = math.nan
    else:
        value = kind(plain)
    return value


def _record(kind: Any, plain: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    values = {}
    for field in dataclasses.fields(kind):
        hint = _hints(kind)[field.name]
        if field.name in plain:
            values[field.name] = _decode(hint, plain[field.name], arrays)
        elif field.default is MISSING and field.default_factory is MISSING:
            if types.NoneType not in typing.get_args(hint):
                raise KeyError(field.name)
            values[field.name] = None
    return kind(**values)


def _array(plain: Any, dtype: Any) -> NDArray[Any]:  # noqa: ANN401 - lists of numbers or texts
    """An array from JSON: of the hint's type, or of what the values are."""
    if dtype is not Any:
        return np.array(plain, dtype)
    found = np.array(plain)
    return found.astype(np.float64) if found.dtype == object else found
