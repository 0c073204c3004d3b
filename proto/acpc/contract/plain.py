"""Converts frozen dataclasses to plain JSON values and back, from their type hints.

Plans of jobs are kept in this form. A class with a class variable ``kind`` writes it beside its
fields; a union of such classes is told apart by it, other unions by their field names.
"""

from __future__ import annotations

import base64
import enum
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar, cast, get_args, get_origin

from acpc.contract.errors import ArgumentError, below, joined

T = TypeVar("T")


def to_plain(value: object) -> Any:
    """A value as JSON: records as objects, tuples as lists, bytes as base64, enums by name."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = {"kind": value.kind} if hasattr(value, "kind") else {}
        return kind | {_key(f): to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def from_plain(cls: type[T], value: object, path: str = "") -> T:
    """Reads a record, or one of a union of records, that ``to_plain`` wrote.

    Raises ArgumentError: An unknown or missing key, or a value that does not fit; names its path.
    """
    if not is_dataclass(cls):  # a union of records
        return cast("T", _read(cls, value, path))
    read = given_in_plain(cls, value, path)
    for key, f in {_key(f): f for f in fields(cls)}.items():
        if f.name not in read and f.default is MISSING and f.default_factory is MISSING:
            raise ArgumentError(joined(path, key), "is required")
    with below(path):
        return cls(**read)


def given_in_plain(cls: type, value: object, path: str = "") -> dict[str, Any]:
    """Reads the fields of a record that a mapping gives, by key or name, and requires none.

    Raises ArgumentError: An unknown key, or a value that does not fit; names its path.
    """
    if not isinstance(value, Mapping):
        raise ArgumentError(path, f"found {_brief(value)}, wanted an object")
    hints = _hints(cls)
    keys = [_key(f) for f in fields(cls)]
    known = {f.name: f.name for f in fields(cls)} | {_key(f): f.name for f in fields(cls)}
    read: dict[str, Any] = {}
    for key, item in value.items():
        if key in known:
            read[known[key]] = _read(hints[known[key]], item, joined(path, key))
        elif key != "kind" or not hasattr(cls, "kind"):
            raise ArgumentError(joined(path, key), f"is not permitted; wanted {', '.join(keys)}")
    return read


def to_json(record: object) -> str:
    """The JSON text of a record, without spaces."""
    return json.dumps(to_plain(record), separators=(",", ":"), ensure_ascii=False)


def from_json(cls: type[T], text: str | bytes) -> T:
    """Reads what ``to_json`` wrote; ValueError when it cannot."""
    return from_plain(cls, json.loads(text))


def _read(hint: object, value: object, path: str) -> object:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return _read(parts[0], value, path)
    if origin in (typing.Union, types.UnionType):
        return _read_union(parts, value, path)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            raise ArgumentError(path, f"found {_brief(value)}, wanted a list")
        return tuple(_read(parts[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if is_dataclass(hint):
        return value if isinstance(value, hint) else from_plain(hint, value, path)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _read_enum(hint, value, path)
    return _read_scalar(hint, value, path)


def _read_union(parts: tuple[Any, ...], value: object, path: str) -> object:
    if value is None and type(None) in parts:
        return None
    members = [part for part in parts if part is not type(None)]
    if len(members) == 1:
        return _read(members[0], value, path)
    if isinstance(value, tuple(members)):
        return value
    if not isinstance(value, Mapping):
        raise ArgumentError(path, f"found {_brief(value)}, wanted an object")
    if all(hasattr(member, "kind") for member in members):
        chosen = {member.kind: member for member in members}
        cls = chosen.get(str(value.get("kind")))
        if cls is None:
            found = _brief(value.get("kind"))
            raise ArgumentError(
                joined(path, "kind"), f"found {found}, wanted one of {', '.join(chosen)}"
            )
        return from_plain(cls, value, path)
    for member in members:
        if set(value) <= {_key(f) for f in fields(member)}:
            return from_plain(member, value, path)
    raise ArgumentError(path, f"found the keys {', '.join(value)}, which no form of it has")


def _read_enum(hint: type[enum.Enum], value: object, path: str) -> enum.Enum:
    names = [member.name.lower() for member in hint]
    if isinstance(value, hint):
        return value
    if value not in names:
        raise ArgumentError(path, f"found {_brief(value)}, wanted one of {', '.join(names)}")
    return hint[value.upper()]


def _read_scalar(hint: Any, value: object, path: str) -> object:
    wanted = get_origin(hint) or hint
    if wanted is bytes and isinstance(value, str):
        return _from_base64(value, path)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if not fits:
        raise ArgumentError(path, f"found {_brief(value)}, wanted {wanted.__name__}")
    return dict(value) if isinstance(value, Mapping) else value


def _from_base64(value: str, path: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ArgumentError(path, f"found {_brief(value)}, wanted base64") from error


def _key(f: Field[object]) -> str:
    key: str = f.metadata.get("json", f.name)
    return key


_hints: Callable[[type], dict[str, object]] = cache(
    partial(typing.get_type_hints, include_extras=True)
)


def _brief(value: object) -> str:
    return f"{value!r:.80}"
