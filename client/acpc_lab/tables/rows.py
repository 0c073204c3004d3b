"""Defines typed rows, columns of equal length, and reads and writes them as CSV.

A value is checked once, where the rows are made; errors name line or row, and column.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar, get_args, get_type_hints

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import Frozen, did_you_mean
from acpc_client.errors import ArgumentError

from acpc_lab.tables.table import csv_of

Texts = NDArray[np.str_]
Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


class Misfit(ArgumentError):
    """A value of a column, at a row from 0, that the column does not take."""

    def __init__(self, column: str, row: int, words: str) -> None:
        super().__init__(column, f"row {row + 1}: {words}")
        self.column, self.row, self.words = column, row, words


@dataclass(frozen=True)
class Column:
    """A column's type and format.

    Attributes:
        about: One line for the reader of ``--help``.
        low: Smallest value.
        high: Largest value.
        optional: The column, or a cell of it, may be absent: NaN in a column of numbers, ``""``
            in a column of texts.
        name: As the row type calls it, which says its kind of values, too.
    """

    about: str
    low: float = -math.inf
    high: float = math.inf
    optional: bool = False
    name: str = ""
    kind: type[np.generic] = np.str_

    @property
    def wanted(self) -> str:
        """The values that are accepted, in words."""
        if self.kind is np.str_:
            return "a text" if self.optional else "a text that is not empty"
        noun = "an integer" if self.kind is np.int64 else "a number"
        low, high = self.low, self.high
        if math.isfinite(low) and math.isfinite(high):
            return f"{noun} between {low:g} and {high:g}"
        if math.isfinite(low):
            return f"{noun} of at least {low:g}"
        return f"{noun} of at most {high:g}" if math.isfinite(high) else noun

    def array(self, values: Any) -> NDArray[Any]:  # noqa: ANN401 - whatever NumPy can read
        """The values, numbers as such or as text, as an array of the column's type.

        Raises ArgumentError: One is no such value, or out of range; a ``Misfit`` names its row.
        """
        found = np.asarray(values)
        if found.ndim != 1:
            raise ArgumentError(self.name, f"has shape {found.shape}; a column has one axis")
        read = []
        for row, value in enumerate(found.tolist()):
            try:
                read.append(self._read(value))
            except (ValueError, OverflowError, TypeError) as error:
                raise Misfit(self.name, row, f"found {value!r}, wanted {self.wanted}") from error
        return np.array(read, dtype=self.kind)

    def _read(self, value: str | float) -> str | float:
        if isinstance(value, str):
            value = value.strip()
        if self.kind is np.str_:
            if not value and not self.optional:
                raise ValueError(value)
            return str(value)
        number = math.nan if value == "" else float(value)
        if math.isnan(number) and self.optional:
            return number
        if self.kind is np.int64:
            number = int(value)
            if number != (value if isinstance(value, int | float) else number):
                raise ValueError(value)
        if not (math.isfinite(number) and self.low <= number <= self.high):
            raise ValueError(value)
        return number

    def absent(self, count: int) -> NDArray[Any]:
        """The column of a table that has none."""
        return np.full(count, "" if self.kind is np.str_ else math.nan, dtype=self.kind)


def column(about: str, low: float = -math.inf, high: float = math.inf) -> Any:  # noqa: ANN401
    """Declares a column of ``Rows``: see ``Column``."""
    return dataclasses.field(metadata={"column": Column(about, low, high)})


def optional(about: str, low: float = -math.inf, high: float = math.inf) -> Any:  # noqa: ANN401
    """Declares a column that may be absent, or empty in some rows."""
    return dataclasses.field(metadata={"column": Column(about, low, high, optional=True)})


class Rows(Frozen, eq=False):
    """Base of the row types, whose fields are ``name: Numbers = column(...)`` and the like.

    Raises ArgumentError: A column holds a value it must not, or the columns differ in length.
    """

    def __post_init__(self) -> None:
        length = None
        for field in self.fields():
            array = field.array(getattr(self, field.name))
            if length is not None and len(array) != length:
                raise ArgumentError(
                    field.name, f"has {len(array)} rows, where the columns before it have {length}"
                )
            length = len(array)
            object.__setattr__(self, field.name, array)
        if not length:
            raise ArgumentError("rows", "there are none; a study needs at least one")

    @classmethod
    @functools.cache
    def fields(cls) -> tuple[Column, ...]:
        """The columns, in order."""
        hints = get_type_hints(cls)
        found = []
        for field in dataclasses.fields(cls):
            kind = get_args(get_args(hints[field.name])[1])[0]
            declared = field.metadata["column"]
            found.append(dataclasses.replace(declared, name=field.name, kind=kind))
        return tuple(found)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Self:
        """Rows from columns by name; optional ones may be left out.

        Raises ArgumentError: A column is missing or unknown, or holds a value it must not.
        """
        cls.require_columns([*columns])
        known = {field.name: field for field in cls.fields()}
        count = len(next(iter(columns.values())))
        return cls(**{n: columns[n] if n in columns else f.absent(count) for n, f in known.items()})

    @classmethod
    def require_columns(cls, names: Sequence[str], where: str = "rows") -> None:
        """Checks a header. Raises ArgumentError: A column is unknown, missing or there twice."""
        known = {field.name: field for field in cls.fields()}
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                if len(names) == 1 and re.search(r"[;\t]", name):
                    hint = "separate columns by commas"
                cut = repr(name[:80]) + "..." * (len(name) > 80)
                about = f"unknown column {cut}; the columns are {', '.join(known)}"
                raise ArgumentError(where, "; ".join(filter(None, [about, hint])))
            if names.count(name) > 1:
                raise ArgumentError(where, f"column {name} occurs {names.count(name)} times")
        for name, field in known.items():
            if name not in names and not field.optional:
                missing = f"column {name} is missing ({field.about})"
                raise ArgumentError(where, f"{missing}; found {str(names)[:1000]}")

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one after another."""
        return cls(
            **{
                field.name: np.concatenate([getattr(part, field.name) for part in parts])
                for field in cls.fields()
            }
        )

    def columns(self) -> dict[str, list[Any]]:
        """Plain values by column; optional columns that are wholly absent are left out."""
        held = {field: getattr(self, field.name) for field in self.fields()}
        return {
            field.name: values.tolist()
            for field, values in held.items()
            if not (field.optional and _is_absent(values))
        }

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Self:
        """The rows of a mask or of indices. Raises ArgumentError: There is none."""
        return type(self)(**{f.name: getattr(self, f.name)[chosen] for f in self.fields()})

    def by(self, *names: str) -> Iterator[tuple[tuple[Any, ...], Self]]:
        """The rows of each combination of values in these columns, as they first occur."""
        keys = groups(*(getattr(self, name).tolist() for name in names))
        return ((key, self.where(held)) for key, held in keys.items())

    def each(self) -> Iterator[Any]:
        """Row after row, whose plain values are attributes."""
        columns = {field.name: getattr(self, field.name).tolist() for field in self.fields()}
        rows = zip(*columns.values(), strict=True)
        return (SimpleNamespace(**dict(zip(columns, row, strict=True))) for row in rows)

    def require_unique(self, *names: str) -> None:
        """Rejects rows that are there twice.

        Raises ArgumentError: Two rows have the same values in these columns.
        """
        seen: dict[tuple[Any, ...], int] = {}
        for row, key in enumerate(zip(*(getattr(self, n).tolist() for n in names), strict=True)):
            if key in seen:
                values = ", ".join(f"{n} {value}" for n, value in zip(names, key, strict=True))
                raise ArgumentError(
                    "rows", f"row {row + 1} repeats row {seen[key] + 1}: both have {values}"
                )
            seen[key] = row

    def __len__(self) -> int:
        return len(getattr(self, self.fields()[0].name))


def _is_absent(array: NDArray[Any]) -> bool:
    return bool((array == "").all() if array.dtype.kind == "U" else np.isnan(array).all())


def groups(*keys: Iterable[Hashable]) -> dict[tuple[Any, ...], NDArray[np.int64]]:
    """Row indices by key, in the order in which keys first occur."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for index, key in enumerate(zip(*keys, strict=True)):
        found.setdefault(key, []).append(index)
    return {key: np.array(indices) for key, indices in found.items()}


Kind = TypeVar("Kind", bound=Rows)


def read_rows(path: Path, kind: type[Kind]) -> Kind:
    """The rows of a CSV file.

    Raises ArgumentError: The file does not hold such rows; the message has line and column.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(str(path), f"is not a text file that can be read: {error}") from error
    return parse_csv(text, kind, str(path))


def parse_csv(text: str, kind: type[Kind], name: str = "rows") -> Kind:
    """The rows of a CSV text: a header, then a row per line; lines that begin with # are skipped.

    Raises ArgumentError: The text does not hold such rows; the message has line and column.
    """
    rows = _lines(text, name)
    header_line, header = next(rows, (1, []))
    names = [cell.strip() for cell in header]
    kind.require_columns(names, f"{name}, line {header_line}")
    lines, values = [], []
    for line, cells in rows:
        if len(cells) != len(names):
            raise ArgumentError(
                f"{name}, line {line}",
                f"found {len(cells)} cells, wanted {len(names)} as in the header",
            )
        lines.append(line)
        values.append(cells)
    if not values:
        raise ArgumentError(name, "has a header and no rows; a study needs at least one row")
    try:
        return kind.of(dict(zip(names, map(list, zip(*values, strict=True)), strict=True)))
    except Misfit as error:
        where = f"{name}, line {lines[error.row]}, column {error.column}"
        raise ArgumentError(where, error.words) from error


def _lines(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line, without comments and empty lines."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        raise ArgumentError(f"{name}, line {reader.line_num}", f"is not CSV: {error}") from error


def to_csv(rows: Rows) -> str:
    """The rows as CSV; every float64 reads back as the same number."""
    return csv_of(rows.columns())
