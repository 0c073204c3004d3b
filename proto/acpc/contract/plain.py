"""Converts frozen dataclasses to plain JSON values and back, from their type hints.

Specs of jobs, plans and results are kept in this form. A class with a class variable ``kind``
writes it beside its fields; a union of such classes is told apart by it, other unions by their
field names. Arrays of a result may stand beside its document, in which they are named.
"""

from __future__ import annotations

import base64
import enum
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar, get_args, get_origin

import numpy as np

from acpc.contract.errors import ArgumentError, below, joined

T = TypeVar("T")
Leaf = Callable[[Any, str], Any]
Arrays = Mapping[str, np.ndarray]
_WANTED: dict[Any, str] = {
    Mapping: "an object", tuple | list: "a list", str: "a text", bool: "true or false",
    int: "a whole number", int | float: "a number", bytes: "base64",
}  # fmt: skip


def _as_base64(value: object, _: str) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def to_plain(value: object, leaf: Leaf = _as_base64, path: str = "") -> Any:
    """A value as JSON: records as objects, tuples as lists, enums by name.

    ``leaf`` makes all others plain, with their path below ``path``; by default bytes are base64.
    """
    if is_dataclass(value) and not isinstance(value, type):
        kind = {"kind": value.kind} if hasattr(value, "kind") else {}
        named = {_key(f): getattr(value, f.name) for f in fields(value)}
        return kind | {k: to_plain(x, leaf, joined(path, k)) for k, x in named.items()}
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {key: to_plain(item, leaf, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item, leaf, f"{path}[{i}]") for i, item in enumerate(value)]
    return leaf(value, path)


def measured(record: Any) -> dict[str, Any]:
    """The plain values of a record but of fields that are not compared: no number depends on them.

    Names of jobs and files are made of these.
    """
    plain: dict[str, Any] = to_plain(record)
    for f in fields(record):
        if not f.compare:
            del plain[_key(f)]
    return plain


def from_plain(cls: type[T], value: object, path: str = "", arrays: Arrays | None = None) -> T:
    """Reads a record, or one of a union of records, that ``to_plain`` wrote.

    With ``arrays``, which stand beside it by name, it is the result of some release: what a newer
    one added is passed over, what an older one lacked is the default or None, and None among
    numbers is NaN.

    Raises ArgumentError: An unknown or missing key, or a value that does not fit; names its path.
    """
    read: T = _read(cls, value, path, arrays)
    return read


def field_from_plain(cls: type, name: str, value: object) -> Any:
    """Reads one field of a record. Raises ArgumentError: The value does not fit it."""
    return _read(_hints(cls)[name], value, name, None)


def to_json(record: object) -> str:
    """The JSON text of a record, without spaces."""
    return json.dumps(to_plain(record), separators=(",", ":"), ensure_ascii=False)


def from_json(cls: type[T], text: str | bytes) -> T:
    """Reads what ``to_json`` wrote; ValueError when it cannot."""
    return from_plain(cls, json.loads(text))


def _read(hint: Any, value: Any, path: str, arrays: Arrays | None) -> Any:  # noqa: PLR0911
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is typing.Annotated:
        return _read(parts[0], value, path, arrays)
    if origin in (typing.Union, types.UnionType):
        return _read_union(parts, value, path, arrays)
    if origin is np.ndarray:
        return _read_array(get_args(parts[1])[0], value, path, arrays)
    if origin is tuple:
        named = arrays is not None and isinstance(value, str)
        found = _read_array(Any, value, path, arrays).tolist() if named else value
        items = enumerate(_checked(found, tuple | list, path))
        return tuple(_read(parts[0], item, f"{path}[{i}]", arrays) for i, item in items)
    if origin is not None and issubclass(origin, Mapping):
        held = _checked(value, Mapping, path)
        if arrays is None:
            return dict(held)
        return {k: _read(parts[1], item, f"{path}[{k!r}]", arrays) for k, item in held.items()}
    if isinstance(value, hint) and (is_dataclass(hint) or issubclass(hint, enum.Enum)):
        return value
    if is_dataclass(hint):
        return _read_record(hint, value, path, arrays)
    if issubclass(hint, enum.Enum):
        members = {member.name.lower(): member for member in hint}
        if not isinstance(value, str) or value not in members:
            raise _misfit(value, path, f"one of {', '.join(members)}")
        return members[value]
    return _read_scalar(hint, value, path, arrays)


def _read_record(cls: Any, value: object, path: str, arrays: Arrays | None) -> object:
    hints, known = _hints(cls), {_key(f): f for f in fields(cls)}
    read: dict[str, object] = {}
    for key, item in _checked(value, Mapping, path).items():
        if key in known:
            name = known[key].name
            read[name] = _read(hints[name], item, joined(path, key), arrays)
        elif arrays is None and (key != "kind" or not hasattr(cls, "kind")):
            raise ArgumentError(joined(path, key), f"is not permitted; wanted {', '.join(known)}")
    for key, f in known.items():
        if f.name not in read and f.default is MISSING and f.default_factory is MISSING:
            if arrays is None or type(None) not in get_args(hints[f.name]):
                raise ArgumentError(joined(path, key), "is missing")
            read[f.name] = None
    with below(path):
        return cls(**read)


def _read_union(parts: tuple[Any, ...], value: Any, path: str, arrays: Arrays | None) -> object:
    if value is None and type(None) in parts:
        return None
    members = [part for part in parts if part is not type(None)]
    if len(members) == 1:
        return _read(members[0], value, path, arrays)
    if isinstance(value, tuple(members)):
        return value
    keys = _checked(value, Mapping, path).keys()
    if all(hasattr(member, "kind") for member in members):
        chosen = {member.kind: member for member in members}
        cls = chosen.get(str(value.get("kind")))
        if cls is None:
            raise _misfit(value.get("kind"), joined(path, "kind"), f"one of {', '.join(chosen)}")
        return _read(cls, value, path, arrays)
    for member in members:
        if keys <= {_key(f) for f in fields(member)}:
            return _read(member, value, path, arrays)
    raise ArgumentError(path, f"found the keys {', '.join(keys)}, which no form of it has")


def _read_array(dtype: Any, value: object, path: str, arrays: Arrays | None) -> np.ndarray:
    """The array that is named, or one of JSON: of the hint's type, or of what the values are."""
    if isinstance(value, str):
        if arrays is None or value not in arrays:
            raise ArgumentError(path, f"its array {value[:80]!r} is missing")
        return arrays[value]
    try:
        if dtype is not Any:
            return np.array(_checked(value, tuple | list, path), dtype)
        found = np.array(value)
        return found.astype(np.float64) if found.dtype == object else found
    except (TypeError, ValueError, OverflowError) as error:
        wanted = "numbers" if dtype is Any else np.dtype(dtype).name
        raise ArgumentError(path, f"holds no array of {wanted}") from error


def _read_scalar(hint: Any, value: Any, path: str, arrays: Arrays | None) -> object:
    try:
        if hint is float:
            if arrays is not None and (value is None or value in ("nan", "inf", "-inf")):
                return float(value or math.nan)
            return float(_checked(value, int | float, path))
        if hint is datetime:
            return datetime.fromisoformat(_checked(value, str, path))
        if hint is bytes and isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except ArgumentError:
        raise
    except OverflowError as error:
        raise ArgumentError(path, f"found {value!r:.80}, which no float64 holds") from error
    except ValueError as error:
        time = "a time such as 2026-11-22T07:30:00+00:00"
        raise _misfit(value, path, _WANTED.get(hint, time)) from error
    return _checked(value, hint, path)


def _checked(value: Any, hint: Any, path: str) -> Any:
    """The value, when it is of this type; a bool is no number."""
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise _misfit(value, path, _WANTED.get(hint, getattr(hint, "__name__", "")))


def _misfit(value: object, path: str, wanted: str) -> ArgumentError:
    return ArgumentError(path, f"found {value!r:.80}, wanted {wanted}")


def _key(f: Field[object]) -> str:
    key: str = f.metadata.get("json", f.name)
    return key


_hints: Callable[[type], dict[str, object]] = cache(
    partial(typing.get_type_hints, include_extras=True)
)
