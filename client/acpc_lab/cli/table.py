"""Tables that fit where they are printed: declared once for each kind of record.

A terminal limits the width: identifiers are shortened, then columns are dropped by their rank, then
text is folded. Elsewhere a table is plain aligned text of any width, for other programs.
"""

from __future__ import annotations

import enum
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal, NamedTuple

from acpc.console import Console
from acpc.contract import cell
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

WIDE = 9
"""Rank of a column that is shown with ``-o wide`` alone."""
# Characters to which prose is folded before a column is dropped, and any text when none is left.
_FOLDED, _LAST_RESORT = 30, 12
_GAP, _ENDLESS = 2, 100_000
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
    """

    title: str
    value: str | Callable[[Any], object]
    spec: str = ""
    rank: int = 0
    short: int = 0

    def cell(self, item: object) -> str:
        """The value of a record, as text."""
        found = getattr(item, self.value) if isinstance(self.value, str) else self.value(item)
        return found if isinstance(found, str) else cell(found, self.spec)


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

    @property
    def least(self) -> int:
        """Characters that it needs: prose can be folded."""
        prose = not self.is_number and any(" " in cell for cell in self.cells)
        return min(self.natural, _FOLDED) if prose else self.natural


def drawn(
    columns: Sequence[Column], items: Iterable[object], width: float, *, wide: bool = False
) -> tuple[Table, list[str]]:
    """The table of some records for a width, and the titles of the columns that it leaves out."""
    listed = list(items)
    shown = [column for column in columns if wide or column.rank < WIDE]
    strips = [_Strip(column, [column.cell(item) for item in listed]) for column in shown]
    dropped: list[str] = []
    if not wide and _across(strips) > width:
        for strip in strips:
            strip.cells = [cell[: strip.column.short or None] for cell in strip.cells]
        while _across(strips) > width and any(strip.column.rank for strip in strips):
            last = max(reversed(strips), key=lambda strip: strip.column.rank)
            strips.remove(last)
            dropped.append(last.column.title)
    table = Table(box=None, pad_edge=False)
    for strip, across in zip(strips, _widths(strips, width), strict=True):
        side: Literal["right", "left"] = "right" if strip.is_number else "left"
        table.add_column(strip.column.title, justify=side, width=across, overflow="fold")
    for row in zip(*(strip.cells for strip in strips), strict=True):
        table.add_row(*map(Text, row))
    return table, dropped


def _across(strips: Sequence[_Strip]) -> int:
    """Characters that a table takes with all its prose folded."""
    return sum(strip.least for strip in strips) + _GAP * (len(strips) - 1)


def _widths(strips: Sequence[_Strip], width: float) -> list[int]:
    """Divides the width among columns, narrow ones first; folds any text as a last resort."""
    widths = [strip.least for strip in strips]
    if _across(strips) > width:
        widths = [x.least if x.is_number else min(x.least, _LAST_RESORT) for x in strips]
    spare = width - sum(widths) - _GAP * (len(strips) - 1)
    more = [
        max(x.natural, cell_len(x.column.title)) - w for x, w in zip(strips, widths, strict=True)
    ]
    for at in sorted(range(len(strips)), key=lambda at: more[at]):
        taken = int(max(0, min(spare, more[at])))
        widths[at] += taken
        spare -= taken
    return widths


def text_of(table: Table, width: int | None) -> str:
    """A table as plain lines; None: as wide as it is."""
    console = Console(width=width or _ENDLESS, color_system=None, file=StringIO())
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def prose(text: str) -> None:
    """Prints a sentence on stdout, on a terminal folded at words."""
    width = terminal_width()
    sys.stdout.write(f"{textwrap.fill(text, width) if width else text}\n")


def show(columns: Sequence[Column], items: Iterable[object], *, wide: bool = False) -> None:
    """Prints the table of some records on stdout."""
    width = terminal_width()
    table, dropped = drawn(columns, items, width or math.inf, wide=wide)
    if width is None:
        sys.stdout.write(text_of(table, width))
    else:
        total = sum((column.width or 0) + _GAP for column in table.columns)
        Console(highlight=False, width=max(width, total)).print(table)
    if dropped:
        titles = ", ".join(reversed(dropped))
        sys.stderr.write(f"left out, for {width} columns: {titles}; -o wide shows all\n")
