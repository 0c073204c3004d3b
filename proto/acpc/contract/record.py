"""What answers can do: print themselves, compare, turn into JSON, a table."""

from __future__ import annotations

import dataclasses
import enum
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from acpc.contract.fields import Frozen
from acpc.contract.help import load_optional
from acpc.contract.plain import to_plain

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


class Record(Frozen, repr=False, eq=False):
    """Base of the answers.

    Two records are equal when all their values are, NaN and arrays included.
    """

    def to_dict(self) -> dict[str, Any]:
        """Plain values; NaN and infinities become None, enums their lower-case name."""
        return {name: to_plain(value, _plain) for name, value in self._items()}

    def to_json(self, indent: int | None = None) -> str:
        """Strict JSON of ``to_dict``."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def _items(self) -> list[tuple[str, object]]:
        return [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_brief(value)}" for name, value in self._items())
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Record):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]


def _plain(value: Any, path: str = "") -> Any:
    """A value as strict JSON has it: see ``to_plain``."""
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist(), _plain)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return value.isoformat()
    return value.to_dict() if hasattr(value, "to_dict") else value


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


Columns = Mapping[str, Sequence[Any]]
MAX_SHOWN = 20  # rows that a notebook shows
_NUMBER = re.compile(r"[-+]?\d[\d.,/%]*(e[-+]?\d+| %)?|[-\s]*")


def columns_of(items: Iterable[object], *names: str) -> dict[str, list[Any]]:
    """Attributes of records as the columns of a table."""
    held = list(items)
    return {name: [getattr(item, name) for item in held] for name in names}


class Tabular:
    """Base of answers that are tables too."""

    def table(self) -> Columns:
        """Columns of one length, by name."""
        raise NotImplementedError

    def headline(self) -> str:
        """The answer in a line, above its table."""
        return type(self).__name__

    def shown(self) -> Columns:
        """Returns the table that a notebook shows; shorter than ``table`` where that helps."""
        return self.table()

    def meaning(self) -> str:
        """Explains the names in ``shown`` in a line; empty where they need no words."""
        return ""

    def to_dataframe(self) -> pandas.DataFrame:
        """The table as a ``pandas.DataFrame``.

        Raises FailedPrecondition: pandas is not installed; the message says how to install it.
        """
        made: pandas.DataFrame = load_optional("pandas", "pip install pandas").DataFrame(
            dict(self.table())
        )
        return made

    def _repr_html_(self) -> str:
        columns, meaning = self.shown(), self.meaning()
        names, rows = list(columns), list(zip(*columns.values(), strict=True))
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell(value))}</td>' for value in row)}</tr>"
            for row in rows[:MAX_SHOWN]
        )
        beyond = len(rows) - MAX_SHOWN
        more = f"<p>and {beyond} more rows</p>" if beyond > 0 else ""
        return (
            f"<div><p><b>{html.escape(self.headline())}</b></p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>"
        ) + (f"<p>{html.escape(meaning)}</p>" if meaning else "")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline()}>"

    def __str__(self) -> str:
        """The answer as a person reads it: a line, a table, and what its names stand for."""
        parts = (self.headline(), text_table(self.shown()), self.meaning())
        return "\n".join(filter(None, parts))


def text_table(columns: Columns, most: int = MAX_SHOWN) -> str:
    """A table as aligned text: a header, ``most`` rows, and how many there are beyond.

    Numbers are on the right of their column.
    """
    count = max(map(len, columns.values()), default=0)
    laid_out = []
    for name, values in columns.items():
        cells = [cell(value) for value in values[:most]]
        side = ">" if cells and all(map(_NUMBER.fullmatch, cells)) else "<"
        width = max(map(len, [name, *cells]))
        laid_out.append([f"{text:{side}{width}}" for text in (name, *cells)])
    lines = ["  ".join(row).rstrip() for row in zip(*laid_out, strict=True)]
    return "\n".join([*lines, *([f"and {count - most} more rows"] * (count > most))])


def cell(value: object, spec: str = "") -> str:
    """A value in a cell: a dash for None and NaN, yes and no, a number in ``spec``, else .4g."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float() if math.isnan(value):
            return "-"
        case float():
            return f"{value:{spec or '.4g'}}"
    return f"{value:{spec}}"


def beside(value: float, limit: float | None, spec: str) -> str:
    """Format a number so that it reads on its side of a limit, with more digits where it must.

    ``spec`` is that of a float with a precision, as ``+.2f``; without a limit it is used as it is.
    """
    text, digits = f"{value:{spec}}", re.search(r"\d+", spec)
    if limit is None or digits is None or not math.isfinite(value):
        return text
    start, end = digits.span()
    for more in range(int(digits[0]) + 1, 18):
        if (float(text) > limit) == (value > limit) and (float(text) < limit) == (value < limit):
            return text
        text = f"{value:{spec[:start]}{more}{spec[end:]}}"
    return repr(float(value))


def ends(lower: float, upper: float, spec: str) -> tuple[str, str]:
    """Format the ends of an interval, rounded outwards; ``spec`` has a precision, as ``.3f``."""
    return _rounded(lower, spec, ROUND_FLOOR), _rounded(upper, spec, ROUND_CEILING)


def _rounded(value: float, spec: str, way: str) -> str:
    digits = re.search(r"\d+", spec)
    if digits and value and math.isfinite(value):
        exact = Decimal(repr(float(value)))
        place = -int(digits[0]) if spec.endswith("f") else exact.adjusted() - int(digits[0]) + 1
        value = float(exact.quantize(Decimal(1).scaleb(place), way, Context(prec=400)))
    return f"{value:{spec}}"


def percent(share: float) -> str:
    """Format a share as a percentage of two digits, of three from 99.5 % on."""
    digits = 3 if 100 * share >= 99.5 else 2
    return f"{100 * share:.{digits}g} %"
