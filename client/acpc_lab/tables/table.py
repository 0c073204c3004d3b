"""Declares the columns of records; writes tables of plain values, archives of arrays and JSON."""

from __future__ import annotations

import csv
import enum
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import beside, cell
from acpc_client import write_whole
from acpc_client.errors import ArgumentError

Columns = Mapping[str, Iterable[Any]]


def csv_of(columns: Columns) -> str:
    """The columns as CSV with a header; None and NaN are empty, and every float64 reads back."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    cells = (["" if _lacks(value) else value for value in column] for column in columns.values())
    writer.writerows(zip(*cells, strict=True))
    return text.getvalue()


def _lacks(value: Any) -> bool:  # noqa: ANN401 - any value of a row
    return value is None or (isinstance(value, float) and math.isnan(value))


def to_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The arrays as a compressed NPZ file, in the order of their names."""
    content = io.BytesIO()
    np.savez_compressed(content, **dict(sorted(arrays.items())))  # type: ignore[arg-type]
    return content.getvalue()


def to_json(document: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Strict JSON of two spaces' indent, with a newline at its end."""
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


TABLE_FORMATS = (".csv", ".json")
Row = dict[str, Any]


class Table(Sequence[Row]):
    """Rows that all have the same keys, in the same order.

    Args:
        rows: The rows; a key that one lacks is None there.
        behind: Key behind which keys stand that only some rows have.
    """

    def __init__(self, rows: Iterable[Row], behind: str) -> None:
        given = list(rows)
        common = [key for key in given[0] if all(key in row for row in given)] if given else []
        rest = [key for key in dict.fromkeys(k for row in given for k in row) if key not in common]
        at = common.index(behind) + 1 if behind in common else len(common)
        self.columns = [*common[:at], *rest, *common[at:]]
        self._rows = [{key: row.get(key) for key in self.columns} for row in given]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - an int or a slice
        return self._rows[index]

    def to_csv(self) -> str:
        """CSV with a header; absent values are empty."""
        return csv_of(self.by_column())

    def by_column(self) -> dict[str, list[Any]]:
        """Each column by its name."""
        return {key: [row[key] for row in self._rows] for key in self.columns}

    def to_json(self) -> str:
        """Strict JSON; NaN and infinities are null."""
        rows = [{key: _strict(value) for key, value in row.items()} for row in self._rows]
        return json.dumps(rows, indent=1, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Writes the rows in the format that the suffix names, whole or not at all.

        Raises ArgumentError: Another suffix than .csv and .json; OSError: The file cannot be
        written.
        """
        target = Path(path)
        match target.suffix:
            case ".csv":
                content = self.to_csv().encode()
            case ".json":
                content = f"{self.to_json()}\n".encode()
            case _:
                wanted = " or ".join(TABLE_FORMATS)
                raise ArgumentError("path", f"found {target.name}, wanted {wanted}")
        write_whole(target, content)


def _strict(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Quantity(NamedTuple):
    """A column.

    Attributes:
        name: Of the column in files and data frames.
        path: Attributes and keys that lead from a record to the value, joined by dots; or a
            function of the record.
        spec: Format of a number for people, for example ``.3f``; empty: four digits, or a text.
        wide: Whether only ``-o wide`` and CSV have it, so that tables fit 80 columns.
        most: Characters that a table shows, the first ones; None: all.
        title: Heading for people; empty: the name.
        hint: What it means, where the title does not say it.
    """

    name: str
    path: str | Callable[[Any], object]
    spec: str = ""
    wide: bool = False
    most: int | None = None
    title: str = ""
    hint: str = ""

    @property
    def heading(self) -> str:
        """Its heading for people."""
        return self.title or self.name

    def _found(self, item: Any) -> Any:  # noqa: ANN401 - any value of a record
        if callable(self.path):
            return self.path(item)
        for name in self.path.split("."):
            item = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        return item

    def of(self, item: object) -> Any:  # noqa: ANN401 - any plain value
        """Returns the value as a plain one; None where there is none."""
        return plain(self._found(item))

    def cell(self, item: Any) -> str:  # noqa: ANN401 - a record
        """Returns the value as text; a number that has a threshold on its side of it."""
        found = self._found(item)
        found = plain(found) if isinstance(found, enum.Enum) else found
        limit = item.threshold(self.name) if hasattr(item, "threshold") else None
        if limit is not None and found is not None:
            return beside(found, limit, self.spec)
        return found if isinstance(found, str) else cell(found, self.spec)


def plain(value: object) -> Any:  # noqa: ANN401 - any plain value
    """An enum as a text, and an empty text as None."""
    if isinstance(value, enum.IntEnum):
        return value.name.lower()
    value = value.value if isinstance(value, enum.Enum) else value
    return None if value == "" else value
