"""Tables that fit where they are printed: declared once for each kind of record.

A terminal limits the width: identifiers are shortened, then columns are dropped by their rank, then
text is folded. Elsewhere a table is plain aligned text of any width, for other programs.
"""

from __future__ import annotations

import enum
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.cells import cell_len

GAP = "  "
WIDE = 9
"""Rank of a column that is shown with ``-o wide`` alone."""
# Characters to which prose is folded before a column is dropped, and any text when none is left.
_FOLDED, _LAST_RESORT = 30, 12
_NUMBER = re.compile(r"[-+]?\d[\d.,/%]*(e[-+]?\d+)?|[-\s]*")


class Format(enum.StrEnum):
    """How a list is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    NAME = "name"


class Column(NamedTuple):
    """A column of the table of a record.

    Attributes:
        title: Its header.
        value: The attribute that it shows, or a function of the record.
        spec: Format of a number, for example ``.3f``; four digits where empty.
        rank: 0: never dropped. The highest rank is dropped first where a terminal is narrow.
        short: Characters that name the record as well as all of them; 0: all are needed.
        means: What a symbol in the header stands for, shown below the table.
    """

    title: str
    value: str | Callable[[Any], object]
    spec: str = ""
    rank: int = 0
    short: int = 0
    means: str = ""

    def cell(self, item: object) -> str:
        """The value of a record, as text."""
        found = getattr(item, self.value) if isinstance(self.value, str) else self.value(item)
        return found if isinstance(found, str) else number(found, self.spec)


class Lines(NamedTuple):
    """A table as text.

    Attributes:
        head: Lines of the header; none where every record is a block of lines.
        body: The rows.
        dropped: Titles of the columns that do not fit.
        means: What the symbols in the header stand for, in a line; empty without any.
    """

    head: list[str]
    body: list[str]
    dropped: list[str]
    means: str


def number(value: Any, spec: str = "") -> str:  # noqa: ANN401 - whatever a cell holds
    """A value in a format, for example ``.3f``; a dash for None and NaN, four digits by default."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float) and not spec:
        return f"{value:.4g}"
    return f"{value:{spec}}"


def terminal_width() -> int | None:
    """Characters in a line of stdout; None where it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@dataclass
class _Strip:
    """A column with its cells."""

    column: Column
    cells: list[str]

    @property
    def is_number(self) -> bool:
        return bool(self.cells) and all(_NUMBER.fullmatch(cell) for cell in self.cells)

    @property
    def natural(self) -> int:
        """Characters of the widest cell, and of the widest word of the title."""
        return max(map(cell_len, [*self.column.title.split(), *self.cells]), default=0)

    def least(self, *, any_text: bool = False) -> int:
        """Characters that it needs; prose can be folded, and as a last resort any text."""
        prose = any(" " in cell for cell in self.cells)
        if self.is_number or not (prose or any_text):
            return self.natural
        return min(self.natural, _LAST_RESORT if any_text else _FOLDED)


def drawn(
    columns: Sequence[Column], items: Iterable[object], width: int | None, *, wide: bool = False
) -> Lines:
    """The table of some records, at most ``width`` characters wide; None: as wide as it is."""
    listed = list(items)
    shown = [column for column in columns if wide or column.rank < WIDE]
    strips = [_Strip(column, [column.cell(item) for item in listed]) for column in shown]
    dropped: list[str] = []
    room = math.inf if width is None else width
    if not wide and _least(strips) > room:
        for strip in strips:
            strip.cells = [cell[: strip.column.short or None] for cell in strip.cells]
        while _least(strips) > room and any(strip.column.rank for strip in strips):
            last = max(reversed(strips), key=lambda strip: strip.column.rank)
            strips.remove(last)
            dropped.append(last.column.title)
    titles = [strip.column.title for strip in strips]
    means = "; ".join(f"{x.column.title}: {x.column.means}" for x in strips if x.column.means)
    rows = list(zip(*(strip.cells for strip in strips), strict=True))
    least = [strip.least() for strip in strips]
    if _across(least) > room:
        least = [strip.least(any_text=True) for strip in strips]
    if _across(least) > room:
        return Lines([], _blocks(titles, rows), dropped, means)
    widths = _widths(least, [max(x.natural, cell_len(x.column.title)) for x in strips], room)
    right = [strip.is_number for strip in strips]
    body = [line for row in rows for line in _folded(row, widths, right)]
    return Lines(_folded(titles, widths, right), body, dropped, means)


def prose(text: str) -> None:
    """Prints a sentence on stdout, on a terminal folded at words."""
    width = terminal_width()
    sys.stdout.write(f"{textwrap.fill(text, width) if width else text}\n")


def show(columns: Sequence[Column], items: Iterable[object], *, wide: bool = False) -> None:
    """Prints the table of some records on stdout, and below it what its symbols mean."""
    width = terminal_width()
    found = drawn(columns, items, width, wide=wide)
    bold = width is not None and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    head = [f"\x1b[1m{line}\x1b[0m" for line in found.head] if bold else found.head
    sys.stdout.write("".join(f"{line}\n" for line in [*head, *found.body]))
    if found.means:
        prose(found.means)
    if found.dropped:
        titles = ", ".join(reversed(found.dropped))
        sys.stderr.write(f"left out, for {width} columns: {titles}; -o wide shows all\n")


def _least(strips: Sequence[_Strip]) -> int:
    return _across([strip.least() for strip in strips])


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _widths(least: Sequence[int], wanted: Sequence[int], room: float) -> list[int]:
    """How wide each column is: those that want little first, the others share what is left."""
    widths = list(least)
    spare = room - _across(least)
    for at in sorted(range(len(least)), key=lambda at: wanted[at] - least[at]):
        more = int(min(spare, wanted[at] - least[at]))
        widths[at] += more
        spare -= more
    return widths


def _folded(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    parts = [
        textwrap.wrap(cell, width) if cell_len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    return [
        _line([part[at] if at < len(part) else "" for part in parts], widths, right)
        for at in range(max(map(len, parts), default=0))
    ]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        " " * (width - cell_len(cell)) + cell if to_right else cell + " " * (width - cell_len(cell))
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return GAP.join(padded).rstrip()


def _blocks(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Each record as lines of title and value, an empty line between two."""
    width = max(map(cell_len, titles))
    blocks = ([f"{title:<{width}}{GAP}{cell}" for title, cell in zip(titles, row)] for row in rows)  # noqa: B905
    return [line for index, block in enumerate(blocks) for line in ([""] * bool(index) + block)]
