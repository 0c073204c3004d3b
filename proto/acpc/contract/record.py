"""What every answer can do: print itself in one readable line, compare, and turn into JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np


class Record:
    """Base of the answers, which are frozen dataclasses.

    Two records are equal when all their values are, NaN and arrays included.
    """

    def to_dict(self) -> dict[str, Any]:
        """Plain values; NaN and infinities become None, enums their lower-case name."""
        return {name: _plain(value) for name, value in self._items()}

    def to_json(self, indent: int | None = None) -> str:
        """Strict JSON of ``to_dict``."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def _items(self) -> list[tuple[str, Any]]:
        return [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]  # type: ignore[arg-type]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_brief(value)}" for name, value in self._items())
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Record):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]


def _plain(value: Any) -> Any:
    plain = value
    match value:
        case enum.Enum():
            plain = value.name.lower()
        case np.ndarray():
            plain = _plain(value.tolist())
        case Mapping():
            plain = {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            plain = [_plain(item) for item in value]
        case float() if not math.isfinite(value):
            plain = None
        case datetime():
            plain = value.isoformat()
        case _ if callable(getattr(value, "to_dict", None)):  # a record, or an error
            plain = value.to_dict()
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            plain = {key: _plain(item) for key, item in dataclasses.asdict(value).items()}
    return plain


def _brief(value: object) -> str:
    brief = repr(value)
    match value:
        case np.ndarray():
            brief = f"{value.dtype}{list(value.shape)}"
        case enum.Enum():
            brief = value.name
        case float():
            brief = f"{value:.6g}"
        case Mapping():
            brief = f"{{{', '.join(f'{key}: {_brief(item)}' for key, item in value.items())}}}"
        case tuple() if len(value) > 4:
            brief = f"<{len(value)} values>"
        case datetime():
            brief = value.isoformat(timespec="seconds")
    return brief
