"""Builds the verdict tables: an overview by level or shift, and one row per measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from acpc.contract import beside, ends
from acpc_client import Interval, Outcome

from acpc_lab.report.model import Measurement, ReportData, dotted


@dataclass(frozen=True)
class Standing:
    """How an outcome looks: a symbol, a word, a colour role.

    Attributes:
        symbol: A sign, such as a circle that is full, half full or hollow.
    """

    symbol: str
    word: str
    role: str


PASSES = Standing("●", "passes", "pass")
FAILS = Standing("○", "fails", "fail")
SURELY_PASSES = Standing("●", "passes, sure", "pass")
LIKELY_PASSES = Standing("◐", "passes, undecided", "pass")
LIKELY_FAILS = Standing("◑", "fails, undecided", "fail")
SURELY_FAILS = Standing("○", "fails, sure", "fail")
OPEN = Standing("?", "inconclusive", "open")
REFERENCE = Standing("◇", "reference", "soft")
PENDING = Standing("◌", "pending", "soft")
NONE = Standing("×", "no result", "soft")  # noqa: RUF001 - the sign, not the letter
ABSENT = Standing("", "not measured", "soft")
_SURENESS = {
    (PASSES, Outcome.PASSED): SURELY_PASSES,
    (PASSES, Outcome.UNDECIDED): LIKELY_PASSES,
    (FAILS, Outcome.UNDECIDED): LIKELY_FAILS,
    (FAILS, Outcome.FAILED): SURELY_FAILS,
}
_STANDINGS = (PASSES, FAILS, *_SURENESS.values(), OPEN, REFERENCE, PENDING, NONE)


def standing(cell: Measurement) -> Standing:
    """Chooses the symbol of a cell's outcome, and of how sure it is where that is known."""
    verdict = verdict_of(cell)
    return verdict if cell.sure is None else _SURENESS.get((verdict, cell.sure), verdict)


def verdict_of(cell: Measurement) -> Standing:
    """Chooses the symbol of a cell's outcome by its numbers alone."""
    if cell.score is not None and cell.is_reference:
        return REFERENCE
    match cell.outcome:
        case Outcome.PASSED:
            return PASSES
        case Outcome.FAILED:
            return FAILS
        case None:
            return PENDING if cell.pending else NONE
    return OPEN


def standings(data: ReportData) -> list[Standing]:
    """Outcomes that the report shows."""
    there = set(map(standing, data.cells))
    return [found for found in _STANDINGS if found in there]


def failed_by(cell: Measurement) -> str:
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
        return [_grid("", "checkpoint", shifts, shown)] if len(data.cells) > 1 else []
    columns = [f"{level:g}" for level in data.levels]
    columns += ["none"] if any(cell.level is None for cell in data.cells) else []
    several = len(data.tasks) > 1

    def place(cell: Measurement) -> tuple[str, str]:
        row = dotted(cell.task if several else "", cell.run and f"run {cell.run}") or "all"
        return row, "none" if cell.level is None else f"{cell.level:g}"

    by_shift = {shift: [cell for cell in shown if cell.shift == shift] for shift in shifts}
    return [_grid(shift, data.level_axis, columns, by_shift[shift], place) for shift in shifts]


def _grid(
    title: str,
    corner: str,
    columns: Sequence[str],
    cells: Sequence[Measurement],
    place: Callable[[Measurement], tuple[str, str]] = lambda cell: (cell.title, cell.shift),
) -> Grid:
    at: dict[str, dict[str, list[Standing]]] = {}
    for cell in cells:
        row, column = place(cell)
        at.setdefault(row, {}).setdefault(column, []).append(standing(cell))
    rows = ((n, tuple(tuple(of.get(text, [ABSENT])) for text in columns)) for n, of in at.items())
    return Grid(title, corner, tuple(columns), tuple(rows))


class TableColumn(NamedTuple):
    """A column of the table; one with a ``spec`` holds numbers, set right and sorted as such.

    Attributes:
        key: The column of a sweep's ``COLUMNS``, whose values it shows with their intervals.
        spec: Format of a number, for example ``.3f``; empty: text.
        read: Shows something else.
        several: Whether it is left out where all values are equal.
    """

    key: str
    title: str
    spec: str = ""
    hint: str = ""
    read: Callable[[Measurement], Any] | None = None
    several: bool = False

    def of(self, cell: Measurement) -> Any:  # noqa: ANN401 - a text or a number
        """Returns the value that it shows of a cell; None: nothing."""
        return cell.value(self.key) if self.read is None else self.read(cell)

    def shown(self, cell: Measurement) -> Value:
        """The value of a cell as text."""
        found = self.of(cell)
        if found is None:
            return Value("\N{EN DASH}", "")
        if isinstance(found, str):
            return Value(found, found)
        if not np.isfinite(found):
            return Value("not finite", "")
        interval = shown_interval(cell.interval(self.key), self.spec)
        limit = cell.score.verdict.limit(self.key) if cell.score else None
        return Value(shown_number(found, self.spec, limit), repr(float(found)), interval)


@dataclass(frozen=True)
class Value:
    """A value as shown, and as sorted, with its interval in words."""

    text: str
    order: str
    interval: str = ""


def _among(cell: Measurement) -> str | None:
    """The confident outcome among all measurements, where these are judged together."""
    if cell.among is None or cell.among.outcome is None:
        return None
    outcomes = {Outcome.PASSED: "passes, sure", Outcome.FAILED: "fails, sure"}
    return outcomes.get(cell.among.outcome, "undecided")


def _of_evidence(name: str, scale: float = 1) -> Callable[[Measurement], float | None]:
    def read(cell: Measurement) -> float | None:
        found = getattr(cell.evidence, name, None)
        return scale * found if found else None

    return read


_COLUMNS = (
    TableColumn("name", "checkpoint", read=lambda c: c.name),
    TableColumn("shift", "shift", read=lambda c: c.shift, several=True),
    TableColumn("ir_relative", "rel. IR", ".3f"),
    TableColumn("sr", "SR", ".3f"),
    TableColumn("score", "S", "+.2f"),
    TableColumn("among", "of all together", hint="as sure of all as of one", read=_among),
    TableColumn("decide", "anchors to decide", "d", "so many in all would probably decide it",
                _of_evidence("anchors_to_decide")),
    TableColumn("unseen", "unseen %", ".3f", "so many episodes may be of a kind not measured",
                _of_evidence("unseen", 100)),
    TableColumn("success", "success %", ".1f", "planning success under the shift",
                lambda c: None if c.success is None else 100 * c.success),
    TableColumn("level", "level", "g", read=lambda c: c.level),
    TableColumn("run", "run", read=lambda c: c.run or None),
    TableColumn("task", "task", read=lambda c: c.task or None, several=True),
    TableColumn("delta_score", "ΔS", "+.2f"),
    TableColumn("ir_raw", "raw IR", ".3f"),
    TableColumn("rounding_floor", "rounding floor", ".1g",
                "below it raw IR has fewer than two digits"),
    TableColumn("eligible", "eligible", "d", "anchors that count for SR, of all"),
    TableColumn("median_latent_distance", "latent dist.", ".3g",
                "median latent distance; near zero: collapse"),
    TableColumn("seed", "draw seed", "d", read=lambda c: c.protocol.seed, several=True),
    TableColumn("neighbourhood", "d", "g", "quantile of state distances that reaches partners",
                lambda c: c.protocol.neighbourhood, several=True),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A cell in the table: values by column, and where it stands."""

    cell: Measurement
    standing: Standing
    verdict: str
    values: dict[str, Value] = field(default_factory=dict)


def table(data: ReportData) -> tuple[list[TableColumn], list[Line]]:
    """The columns that hold anything (some: more than one value), and the rows, references last."""

    def says(column: TableColumn) -> bool:
        found = {column.of(cell) for cell in data.cells}
        return len(found) > 1 if column.several else found != {None}

    columns = [it for it in _COLUMNS if says(it) and (it.key != "among" or data.corrects)]
    named = {"level": data.level_name or "level"}
    columns = [it._replace(title=named.get(it.key, it.title)) for it in columns]
    rows = [
        Line(cell, standing(cell), failed_by(cell), {c.key: c.shown(cell) for c in columns})
        for cell in sorted(data.cells, key=lambda cell: cell.is_reference)
    ]
    return columns, rows


def shown_interval(interval: Interval | None, spec: str = ".3f") -> str:
    """Both ends, rounded outwards; empty without an interval, as of what is 1 by definition."""
    if interval is None or interval.lower == interval.upper:
        return ""
    return " to ".join(map(_shown, ends(interval.lower, interval.upper, spec)))


def shown_number(value: float, spec: str, limit: float | None = None) -> str:
    """A number as text, on its side of a limit."""
    return _shown(beside(value, limit, spec))


def _shown(text: str) -> str:
    """A number's text with the sign that is as wide as a plus, and the sign of infinity."""
    infinite = text.replace("+inf", "inf").replace("inf", "\N{INFINITY}")
    return infinite.replace("-", "\N{MINUS SIGN}")
