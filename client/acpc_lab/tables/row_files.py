"""Reads and writes typed rows as CSV and Parquet; errors in a CSV name line and column."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from acpc.contract import did_you_mean
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.extras import pyarrow
from acpc_lab.tables.rows import Field, Rows

Kind = TypeVar("Kind", bound=Rows)


def read_rows(path: Path, kind: type[Kind]) -> Kind:
    """The rows of a ``.csv`` or ``.parquet`` file.

    Raises ArgumentError: The file does not hold such rows; for CSV the message has line and column;
    FailedPrecondition: Parquet, and pyarrow is not installed.
    """
    if path.suffix == ".parquet":
        return _read_parquet(path, kind)
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
            values[field.name].append(_value(field, cell, f"{name}, line {line}"))
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


def _value(field: Field, cell: str, where: str) -> str | float | int:
    try:
        value = field.parse(cell)
    except ValueError:
        accepted = False
    else:
        accepted = field.accepts(value)
    if not accepted:
        raise ArgumentError(
            f"{where}, column {field.name}", f"found {cell!r}, wanted {field.wanted}"
        )
    return value


def to_csv(rows: Rows) -> str:
    """The rows as CSV; every float64 reads back as the same number."""
    columns = rows.columns()
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(_cells(column) for column in columns.values()), strict=True))
    return out.getvalue()


def _cells(column: NDArray[Any]) -> Iterable[str]:
    for value in column.tolist():
        yield "" if isinstance(value, float) and math.isnan(value) else str(value)


def to_parquet(rows: Rows) -> bytes:
    """The rows as Parquet. Raises FailedPrecondition: pyarrow is not installed."""
    arrow, parquet = pyarrow()
    columns = {
        name: arrow.array(column.tolist()) if column.dtype.kind == "U" else column
        for name, column in rows.columns().items()
    }
    content = io.BytesIO()
    parquet.write_table(arrow.table(columns), content)
    return content.getvalue()


def _read_parquet(path: Path, kind: type[Kind]) -> Kind:
    arrow, parquet = pyarrow()
    try:
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise ArgumentError(
            str(path), f"is not a Parquet file that can be read: {error}"
        ) from error
    _match(table.column_names, kind, str(path))
    return kind.of({name: np.asarray(table[name].to_pylist()) for name in table.column_names})
