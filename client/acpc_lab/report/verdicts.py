"""Builds the tables of verdicts: symbols, an overview by level or shift, and a row per measurement.

Columns are those of a sweep's ``COLUMNS``, with the axes that labels give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from acpc.contract import NUMBERS, TITLES, Place, beside, curve_of, ends
from acpc_client import Interval, Outcome

from acpc_lab.evidence import SeverityLimit
from acpc_lab.report.model import ReportData, dotted
from acpc_lab.sweeps import BY_NAME, CellResult
from acpc_lab.tables import Quantity


class Standing(NamedTuple):
    """How an outcome looks: a circle that is full, half full or hollow, a word, a colour role."""

    symbol: str
    word: str
    role: str


PASSES = Standing("●", "passes", "pass")
FAILS = Standing("○", "fails", "fail")
MISFIT = Standing("⊘", "does not fit the data", "fail")
OPEN = Standing("?", "inconclusive", "open")
REFERENCE = Standing("◇", "reference", "soft")
PENDING = Standing("◌", "pending", "soft")
NONE = Standing("×", "no result", "soft")  # noqa: RUF001 - the sign, not the letter
ABSENT = Standing("", "not measured", "soft")
_SURENESS = {
    (PASSES, Outcome.PASSED): Standing("●", "passes, sure", "pass"),
    (PASSES, Outcome.UNDECIDED): Standing("◐", "passes, undecided", "pass"),
    (FAILS, Outcome.UNDECIDED): Standing("◑", "fails, undecided", "fail"),
    (FAILS, Outcome.FAILED): Standing("○", "fails, sure", "fail"),
}
_STANDINGS = (PASSES, FAILS, *_SURENESS.values(), MISFIT, OPEN, REFERENCE, PENDING, NONE)


def standing(cell: CellResult) -> Standing:
    """Chooses the symbol of a cell's outcome, and of how sure it is where that is known."""
    verdict = verdict_of(cell)
    return verdict if cell.sure is None else _SURENESS.get((verdict, cell.sure), verdict)


def verdict_of(cell: CellResult) -> Standing:
    """Chooses the symbol of a cell's outcome by its numbers alone."""
    if cell.score is None:
        return NONE if cell.state.done else PENDING
    if cell.is_reference:
        return REFERENCE
    known = {Outcome.PASSED: PASSES, Outcome.FAILED: FAILS, Outcome.DOES_NOT_FIT: MISFIT}
    return known.get(cell.score.verdict.outcome, OPEN)


def standings(data: ReportData) -> list[Standing]:
    """Outcomes that the report shows."""
    there = set(map(standing, data.cells))
    return [found for found in _STANDINGS if found in there]


def failed_by(cell: CellResult) -> str:
    """The verdict in words, with the thresholds it fails and how sure it is."""
    found = standing(cell)
    if cell.score is None or verdict_of(cell) is not FAILS:
        return found.word
    verdict = cell.score.verdict
    missed = ["IR"] * (verdict.ir_passed is False) + ["SR"] * (not verdict.sr_passed)
    return found.word.replace("fails", f"fails {' and '.join(missed)}".strip())


@dataclass(frozen=True)
class Grid:
    """An overview: one symbol per cell; several cells of one place are several symbols."""

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[Standing, ...], ...]], ...]


def grids(data: ReportData) -> list[Grid]:
    """Outcomes by training run and level, one grid per shift; else by checkpoint and shift."""
    shown = sorted(data.cells, key=lambda cell: cell.is_reference)
    shifts = list(dict.fromkeys(cell.shift for cell in shown))
    if not data.has_levels:
        by_shift = _grid(
            "", "checkpoint", shifts, shown, lambda c: (dotted(c.task, c.name), c.shift)
        )
        return [by_shift] if len(data.cells) > 1 else []
    columns = [f"{level:g}" for level in data.levels]
    columns += ["none"] if any(cell.level is None for cell in data.cells) else []
    several = len(data.tasks) > 1

    def place(cell: CellResult) -> tuple[str, str]:
        row = dotted(cell.task if several else "", cell.run and f"run {cell.run}") or "all"
        return row, "none" if cell.level is None else f"{cell.level:g}"

    return [
        _grid(shift, data.level_axis, columns, [c for c in shown if c.shift == shift], place)
        for shift in shifts
    ]


def _grid(
    title: str,
    corner: str,
    columns: Sequence[str],
    cells: Sequence[CellResult],
    place: Callable[[CellResult], tuple[str, str]],
) -> Grid:
    at: dict[str, dict[str, list[Standing]]] = {}
    for cell in cells:
        row, column = place(cell)
        at.setdefault(row, {}).setdefault(column, []).append(standing(cell))
    rows = ((n, tuple(tuple(of.get(text, [ABSENT])) for text in columns)) for n, of in at.items())
    return Grid(title, corner, tuple(columns), tuple(rows))


class LimitTable(NamedTuple):
    """A row a checkpoint, a column a kind; None where it has fewer than two severities."""

    curves: tuple[str, ...]
    rows: tuple[tuple[str, tuple[SeverityLimit | None, ...]], ...]
    words: str


def limit_table(data: ReportData) -> LimitTable | None:
    """Up to which severity each checkpoint passes; None where none has several of a kind.

    What tells curves apart is the checkpoint, the seed, the neighbourhood, and the kind of shift.
    """
    limited = [(cell, cell.limit) for cell in data.candidates if cell.limit is not None]
    if not limited:
        return None
    rows: dict[tuple[str, int, float], dict[str, SeverityLimit]] = {}
    for cell, limit in limited:
        apart = dotted(cell.task, cell.name), cell.cell.seed, cell.cell.protocol.neighbourhood
        rows.setdefault(apart, {})[curve_of(cell.cell.shift) or ""] = limit
    names = tuple(dict.fromkeys(name for found in rows.values() for name in found))
    shown = tuple((apart[0], tuple(map(found.get, names))) for apart, found in rows.items())
    return LimitTable(names, shown, limited[0][1].meaning())


class Value(NamedTuple):
    """A value as shown, and as sorted, with its interval in words."""

    text: str
    order: str
    interval: str = ""


_COLUMNS = (
    Quantity("name", "name", title="checkpoint"),
    Quantity("shift", "shift", title="shift"),
    *(BY_NAME[name] for name in TITLES if NUMBERS[name].report is Place.FIRST),
    BY_NAME["anchors_to_decide"],
    Quantity("unseen", lambda c: 100 * (c.value("unseen") or 0) or None, ".3f", title="unseen %",
             hint="so many episodes may be of a kind that was not measured"),
    Quantity("success", lambda c: None if c.success is None else 100 * c.success, ".1f",
             title="success %", hint="planning success under the shift"),
    Quantity("level", "level", "g", title="level"),
    Quantity("run", lambda cell: cell.run or None, title="run"),
    Quantity("task", lambda cell: cell.task or None, title="task"),
    *(BY_NAME[name] for name in TITLES if NUMBERS[name].report is Place.WIDE),
    Quantity("seed", "cell.seed", "d", title="draw seed"),
    Quantity("near", "cell.protocol.neighbourhood", "g", title="neighbourhood",
             hint=BY_NAME["neighbourhood"].hint),
)  # fmt: skip
# Left out where all values are equal.
_SEVERAL = ("shift", "task", "seed", "near")


@dataclass(frozen=True)
class Line:
    """A cell in the table: values by column, and where it stands."""

    cell: CellResult
    standing: Standing
    verdict: str
    values: dict[str, Value]


def table(data: ReportData) -> tuple[list[Quantity], list[Line]]:
    """The columns that hold anything (some: more than one value), and the rows, references last."""

    def says(column: Quantity) -> bool:
        found = {column.of(cell) for cell in data.cells}
        return len(found) > 1 if column.name in _SEVERAL else found != {None}

    columns = [column for column in _COLUMNS if says(column)]
    if data.level_name:
        columns = [x._replace(title=data.level_name) if x.name == "level" else x for x in columns]
    rows = [
        Line(cell, standing(cell), failed_by(cell), {c.name: _shown(c, cell) for c in columns})
        for cell in sorted(data.cells, key=lambda cell: cell.is_reference)
    ]
    return columns, rows


def _shown(column: Quantity, cell: CellResult) -> Value:
    """The value of a cell as text."""
    found = column.of(cell)
    if found is None:
        return Value("\N{EN DASH}", "")
    if isinstance(found, str):
        return Value(found, found)
    if not np.isfinite(found):
        return Value("not finite", "")
    text = _signed(beside(found, cell.threshold(column.name), column.spec))
    return Value(text, repr(float(found)), _ends(cell.interval(column.name), column.spec))


def _ends(interval: Interval | None, spec: str) -> str:
    """Both ends, rounded outwards; empty without an interval, as of what is 1 by definition."""
    if interval is None or interval.lower == interval.upper:
        return ""
    return " to ".join(map(_signed, ends(interval.lower, interval.upper, spec)))


def _signed(text: str) -> str:
    """A number's text with the sign that is as wide as a plus, and the sign of infinity."""
    infinite = text.replace("+inf", "inf").replace("inf", "\N{INFINITY}")
    return infinite.replace("-", "\N{MINUS SIGN}")
