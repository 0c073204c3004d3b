"""An answer as a JSON document and named arrays, and back, without losing a bit.

``Record.to_dict`` is for reading: it turns NaN into null. What is written here can be read again.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def encode(record: Any) -> tuple[Any, Arrays]:  # noqa: ANN401 - any dataclass of the answers
    """The document of a record, and the arrays it names.

    Floats that JSON cannot hold are written as text ("nan", "inf"). A tuple of enums, of which
    there is one per anchor, becomes an array of their names.
    """
    arrays: Arrays = {}
    return _encode(record, "", arrays), arrays


def _encode(value: Any, path: str, arrays: Arrays) -> Any:  # noqa: ANN401 - any field
    document = value
    match value:
        case enum.Enum():
            document = value.name.lower()
        case np.ndarray():
            arrays[path], document = value, path
        case tuple() if value and all(isinstance(item, enum.Enum) for item in value):
            names = np.array([item.name.lower() for item in value])
            arrays[path], document = names, path
        case tuple() | list():
            items = enumerate(value)
            document = [_encode(item, f"{path}[{index}]", arrays) for index, item in items]
        case float() if not math.isfinite(value):
            document = str(value)
        case _ if dataclasses.is_dataclass(value):
            prefix = f"{path}." if path else ""
            document = {
                field.name: _encode(getattr(value, field.name), f"{prefix}{field.name}", arrays)
                for field in dataclasses.fields(value)
            }
    return document


def decode(kind: Any, document: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    """The record of type ``kind`` that ``encode`` was given.

    Raises:
        ArgumentError: The document is not of this type.
    """
    try:
        return _decode(kind, document, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError("path", f"the file holds no {kind.__name__}: {error!r}") from error


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    return typing.get_type_hints(kind)


def _decode(kind: Any, value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        (wanted,) = (item for item in inner if item is not types.NoneType)
        return None if value is None else _decode(wanted, value, arrays)
    if origin is np.ndarray:
        return arrays[value]
    if origin is tuple:
        items = arrays[value].tolist() if isinstance(value, str) else value
        return tuple(_decode(inner[0], item, arrays) for item in items)
    if dataclasses.is_dataclass(kind):
        record: Any = kind
        hints = _hints(record)
        unknown = value.keys() - hints.keys()
        if unknown:
            raise ValueError(f"unknown fields {', '.join(sorted(unknown))}")
        fields = {name: _decode(hints[name], item, arrays) for name, item in value.items()}
        return record(**fields)
    if issubclass(kind, enum.Enum):
        return kind[value.upper()]
    return kind(value)
