"""Defines typed rows, columns of equal length, and reads and writes them as CSV.

Values are checked one by one; errors name line and column.
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
from typing import Any, Self, TypeVar, get_args, get_type_hints

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import did_you_mean
from acpc_client.errors import ArgumentError

from acpc_lab.tables.table import csv_of

Texts = NDArray[np.str_]
Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Column:
    """A column's type and format.

    Attributes:
        about: One line for the reader of ``--help``.
        low: Smallest value.
        high: Largest value.
        optional: The column, or a cell of it, may be absent: NaN in a column of numbers, ``""``
            in a column of texts.
    """

    about: str
    low: float = -math.inf
    high: float = math.inf
    optional: bool = False


@dataclass(frozen=True)
class Field:
    """A column with its name and kind of values."""

    name: str
    kind: type[np.generic]
    column: Column

    @property
    def wanted(self) -> str:
        """The values that are accepted, in words."""
        if self.kind is np.str_:
            return "a text" if self.column.optional else "a text that is not empty"
        noun = "an integer" if self.kind is np.int64 else "a number"
        low, high = self.column.low, self.column.high
        if math.isfinite(low) and math.isfinite(high):
            return f"{noun} between {low:g} and {high:g}"
        if math.isfinite(low):
            return f"{noun} of at least {low:g}"
        return f"{noun} of at most {high:g}" if math.isfinite(high) else noun

    def read(self, cell: str, where: str) -> str | float | int:
        """The value of a cell of a file. Raises ArgumentError: It is none; names ``where``."""
        text = cell.strip()
        try:
            if self.kind is np.str_:
                value: str | float | int = text
            elif not text and self.column.optional:
                value = math.nan
            else:
                value = int(text) if self.kind is np.int64 else float(text)
            if self.accepts(value):
                return value
        except (ValueError, OverflowError):
            pass
        field = f"{where}, column {self.name}"
        raise ArgumentError(field, f"found {cell!r}, wanted {self.wanted}")

    def accepts(self, value: str | float | int) -> bool:
        """Whether a value of the right type lies in the column's range."""
        if isinstance(value, str):
            return bool(value) or self.column.optional
        if math.isnan(value):
            return self.column.optional
        return math.isfinite(value) and self.column.low <= value <= self.column.high

    def coerce(self, values: Any) -> NDArray[Any]:  # noqa: ANN401 - whatever NumPy can read
        """The values as an array of the column's type.

        Raises ArgumentError: They cannot be, or one is out of range.
        """
        found = np.asarray(values)
        if found.ndim != 1:
            raise ArgumentError(self.name, f"has shape {found.shape}; a column has one axis")
        try:
            array = found.astype(self.kind)
        except (ValueError, TypeError) as error:
            raise ArgumentError(self.name, f"{error}; wanted {self.wanted} in each row") from error
        exact = self.kind is not np.int64 or found.dtype.kind in "iub" or (array == found).all()
        if not exact:
            raise ArgumentError(self.name, f"holds fractions; wanted {self.wanted} in each row")
        for index, value in enumerate(array.tolist()):
            if not self.accepts(value):
                raise ArgumentError(
                    self.name, f"row {index + 1}: found {value!r}, wanted {self.wanted}"
                )
        return array

    def absent(self, count: int) -> NDArray[Any]:
        """The column of a table that has none."""
        return np.full(count, "" if self.kind is np.str_ else math.nan, dtype=self.kind)


@dataclass(frozen=True, eq=False)
class Rows:
    """Base of the row types, whose fields are ``Annotated[Numbers, Column(...)]`` and the like.

    Raises ArgumentError: A column holds a value it must not, or the columns differ in length.
    """

    def __post_init__(self) -> None:
        length = None
        for field in self.fields():
            array = field.coerce(getattr(self, field.name))
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
    def fields(cls) -> tuple[Field, ...]:
        """The columns, in order."""
        hints = get_type_hints(cls, include_extras=True)
        found = []
        for field in dataclasses.fields(cls):
            array, column = get_args(hints[field.name])
            kind = get_args(get_args(array)[1])[0]
            found.append(Field(field.name, kind, column))
        return tuple(found)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Self:
        """Rows from columns by name; optional ones may be left out.

        Raises ArgumentError: A column is missing or unknown, or holds a value it must not.
        """
        names = [field.name for field in cls.fields()]
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise ArgumentError(unknown[0], f"is no column; the columns are {', '.join(names)}")
        missing = [f.name for f in cls.fields() if f.name not in columns and not f.column.optional]
        if missing:
            raise ArgumentError(missing[0], f"is missing; found {', '.join(columns)}")
        count = len(next(iter(columns.values())))
        return cls(
            **{
                f.name: columns[f.name] if f.name in columns else f.absent(count)
                for f in cls.fields()
            }
        )

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
            if not (field.column.optional and _is_absent(values))
        }

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Self:
        """The rows of a mask or of indices. Raises ArgumentError: There is none."""
        return type(self)(**{f.name: getattr(self, f.name)[chosen] for f in self.fields()})

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
    lines = _lines(text, name)
    header_line, header = next(lines, (1, []))
    names = [cell.strip() for cell in header]
    fields = _match(names, kind, f"{name}, line {header_line}")
    values: dict[str, list[str | float | int]] = {field.name: [] for field in fields}
    for line, cells in lines:
        if len(cells) != len(names):
            raise ArgumentError(
                f"{name}, line {line}",
                f"found {len(cells)} cells, wanted {len(names)} as in the header",
            )
        for field, cell in zip(fields, cells, strict=True):
            values[field.name].append(field.read(cell, f"{name}, line {line}"))
    if not values[fields[0].name]:
        raise ArgumentError(name, "has a header and no rows; a study needs at least one row")
    return kind.of(values)


def _lines(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line, without comments and empty lines."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        raise ArgumentError(f"{name}, line {reader.line_num}", f"is not CSV: {error}") from error


def _match(names: list[str], kind: type[Rows], where: str) -> list[Field]:
    """The fields behind a header, in its order."""
    known = {field.name: field for field in kind.fields()}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            if len(names) == 1 and re.search(r"[;\t]", name):
                hint = "separate columns by commas"
            about = f"unknown column {name!r}; the columns are {', '.join(known)}"
            raise ArgumentError(where, "; ".join(filter(None, [about, hint])))
        if names.count(name) > 1:
            raise ArgumentError(where, f"column {name} occurs {names.count(name)} times")
    for field in kind.fields():
        if field.name not in names and not field.column.optional:
            raise ArgumentError(
                where, f"column {field.name} is missing ({field.column.about}); found {names}"
            )
    return [known[name] for name in names]


def to_csv(rows: Rows) -> str:
    """The rows as CSV; every float64 reads back as the same number."""
    return csv_of(rows.columns())
