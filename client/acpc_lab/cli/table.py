"""Tables that fit where they are printed: declared once for each kind of record.

A terminal limits the width: identifiers are shortened, then columns are dropped by their rank, then
text is folded. Elsewhere a table is plain aligned text of any width, for other programs.
"""

from __future__ import annotations

import csv
import enum
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Literal

from acpc.console import Console, escaped
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from acpc_lab.tables import Quantity

WIDE = 9
"""Rank of a column that is shown with ``-o wide`` alone."""
# Characters to which prose is folded before a column is dropped.
_FOLDED = 30
_GAP, _ENDLESS = 2, 100_000
_NUMBER = re.compile(r"[-+]?\d[\d.,/%]*(e[-+]?\d+)?|[-\s]*")


class Format(enum.StrEnum):
    """How a list is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


def terminal_width() -> int | None:
    """Characters in a line of stdout; None where it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _is_number(cells: Sequence[str]) -> bool:
    return bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)


def _least(title: str, cells: Sequence[str]) -> int:
    """Characters that a column needs: prose can be folded, and so can a title of several words."""
    widest = max(map(cell_len, [*title.split(), *cells]), default=0)
    prose = not _is_number(cells) and any(" " in cell for cell in cells)
    return min(widest, _FOLDED) if prose else widest


def drawn(
    columns: Sequence[Quantity], items: Iterable[object], width: float, *, wide: bool = False
) -> tuple[Table, list[str]]:
    """The table of some records for a width, and the titles of the columns that it leaves out."""
    listed, dropped = list(items), []
    strips = {
        column: [escaped(column.cell(item)) for item in listed]
        for column in columns
        if wide or column.rank < WIDE
    }

    def across() -> int:
        least = [_least(column.heading, cells) for column, cells in strips.items()]
        return sum(least) + _GAP * (len(least) - 1)

    if not wide and across() > width:
        strips = {c: [cell[: c.short or None] for cell in cells] for c, cells in strips.items()}
        while across() > width and any(column.rank for column in strips):
            last = max(reversed(strips), key=lambda column: column.rank)
            del strips[last]
            dropped.append(last.heading)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for column, cells in strips.items():
        number = _is_number(cells)
        side: Literal["right", "left"] = "right" if number else "left"
        least = min(_least(column.heading, cells), int(min(width, _ENDLESS)) if number else 1)
        table.add_column(column.heading, justify=side, overflow="fold", min_width=least)
    for row in zip(*strips.values(), strict=True):
        table.add_row(*map(Text, row))
    return table, dropped


def text_of(table: Table, width: int | None) -> str:
    """A table as plain lines; None: as wide as it is."""
    console = Console(width=width or _ENDLESS, color_system=None, file=StringIO())
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def show(columns: Sequence[Quantity], items: Iterable[object], form: Format = Format.TABLE) -> None:
    """Prints the table of some records on stdout."""
    if form is Format.CSV:
        rows = [[escaped(column.cell(item)) for column in columns] for item in items]
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([[column.heading for column in columns], *rows])
        return
    wide, width = form is Format.WIDE, terminal_width()
    table, dropped = drawn(columns, items, width or _ENDLESS, wide=wide)
    if width is None:
        sys.stdout.write(text_of(table, width))
    else:
        Console(highlight=False, width=_ENDLESS if wide else width).print(table)
    if dropped:
        titles = ", ".join(reversed(dropped))
        sys.stderr.write(f"left out, for {width} columns: {titles}; -o wide shows all\n")
