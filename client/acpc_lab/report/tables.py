"""Builds the verdict tables: an overview by level or shift, and one row per measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from acpc_client import Interval, Outcome

from acpc_lab.report.measures import margin_of
from acpc_lab.report.model import Measurement, ReportData


@dataclass(frozen=True)
class Standing:
    """How an outcome looks: a symbol, a word, a colour role.

    Attributes:
        symbol: A sign; or ``full``, ``left``, ``right``, ``none``: a circle, filled so far.
    """

    symbol: str
    word: str
    role: str


PASSES = Standing("full", "passes", "pass")
FAILS = Standing("none", "fails", "fail")
SURELY_PASSES = Standing("full", "passes, sure", "pass")
LIKELY_PASSES = Standing("left", "passes, undecided", "pass")
LIKELY_FAILS = Standing("right", "fails, undecided", "fail")
SURELY_FAILS = Standing("none", "fails, sure", "fail")
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
    """How the outcome of a cell looks, with how sure it is where that is known."""
    verdict = verdict_of(cell)
    return verdict if cell.sure is None else _SURENESS.get((verdict, cell.sure), verdict)


def verdict_of(cell: Measurement) -> Standing:
    """How the outcome of a cell looks by its numbers as they are."""
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
    """Those that the report has."""
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
    # Factors have a section of their own.
    shown = [cell for cell in data.cells if cell.factor is None]
    shown.sort(key=lambda cell: cell.is_reference)
    if not data.has_levels:
        if len(data.cells) < 2 or not shown:
            return []
        names = tuple(dict.fromkeys(map(_row_name, shown)))
        shifts = tuple(dict.fromkeys(cell.shift for cell in shown))
        return [_grid("", "checkpoint", names, shifts, shown, lambda c: c.shift)]
    several = len(data.tasks) > 1

    def row(cell: Measurement) -> str:
        parts = (cell.task if several else "", cell.run and f"run {cell.run}")
        return " \N{MIDDLE DOT} ".join(filter(None, parts)) or "all"

    levels = sorted({cell.level for cell in data.cells if cell.level is not None})
    columns = [f"{level:g}" for level in levels]
    columns += ["none"] if any(cell.level is None for cell in data.cells) else []
    found = []
    for shift in dict.fromkeys(cell.shift for cell in shown):
        cells = [cell for cell in shown if cell.shift == shift]
        rows = tuple(dict.fromkeys(map(row, cells)))
        found.append(_grid(shift, data.level_axis, rows, columns, cells, _level_text, row))
    return found


def _grid(
    title: str,
    corner: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Measurement],
    column: Callable[[Measurement], str],
    row: Callable[[Measurement], str] | None = None,
) -> Grid:
    place = row or _row_name
    at: dict[tuple[str, str], list[Standing]] = {}
    for cell in cells:
        at.setdefault((place(cell), column(cell)), []).append(standing(cell))
    lines = tuple(
        (name, tuple(tuple(at.get((name, text), [ABSENT])) for text in columns)) for name in rows
    )
    return Grid(title, corner, tuple(columns), lines)


def _row_name(cell: Measurement) -> str:
    return " \N{MIDDLE DOT} ".join(filter(None, (cell.task, cell.name)))


def _level_text(cell: Measurement) -> str:
    return "none" if cell.level is None else f"{cell.level:g}"


@dataclass(frozen=True)
class TableColumn:
    """A column of the table; ``number`` ones are set right and sorted as numbers.

    A narrow window shows the first columns and folds the others.
    """

    key: str
    title: str
    number: bool = True
    hint: str = ""

    @property
    def folds(self) -> bool:
        """Whether a narrow window leaves it out until it is asked for."""
        return self.key not in ("name", "shift", "ir", "sr", "score", "among")


@dataclass(frozen=True)
class Value:
    """A value as shown, and as sorted, with its interval in words."""

    text: str
    order: str
    interval: str = ""


@dataclass(frozen=True)
class Row:
    """A cell in the table: values by column, where it stands, and its distributions."""

    cell: Measurement
    standing: Standing
    verdict: str
    values: dict[str, Value] = field(default_factory=dict)
    strip: Strip | None = None


@dataclass(frozen=True)
class Strip:
    """R and D of a row on one log scale, 0 to 100: quantiles 10, 50, 90, and what decides.

    Attributes:
        radius: Of R; the 90 % end is raw IR under the paper's protocol.
        distance: Of D; None where no anchor is eligible.
        wanted: What D must exceed.
    """

    radius: tuple[float, float, float]
    distance: tuple[float, float, float] | None
    wanted: float
    words: str


def _among(cell: Measurement) -> str | None:
    """The confident outcome among all measurements, where these are judged together."""
    if cell.among is None or cell.among.outcome is None:
        return None
    outcomes = {Outcome.PASSED: "passes, sure", Outcome.FAILED: "fails, sure"}
    return outcomes.get(cell.among.outcome, "undecided")


_COLUMNS: tuple[tuple[TableColumn, Callable[[Measurement], str | float | None]], ...] = (
    (TableColumn("name", "checkpoint", number=False), lambda c: c.name),
    (TableColumn("shift", "shift", number=False), lambda c: c.shift),
    (TableColumn("ir", "rel. IR"), lambda c: c.score.verdict.ir_relative if c.score else None),
    (TableColumn("sr", "SR"), lambda c: c.score.checkpoint.sr if c.score else None),
    (TableColumn("score", "S"), lambda c: c.score.verdict.score if c.score else None),
    (
        TableColumn("among", "of all together", number=False, hint="as sure of all as of one"),
        _among,
    ),
    (
        TableColumn("decide", "anchors to decide", hint="so many in all would probably decide it"),
        lambda c: c.evidence.anchors_to_decide if c.evidence else None,
    ),
    (
        TableColumn("unseen", "unseen %", hint="so many episodes may be of a kind not measured"),
        lambda c: 100 * c.evidence.unseen if c.evidence and c.evidence.unseen else None,
    ),
    (
        TableColumn("success", "success %", hint="planning success under the shift"),
        lambda c: None if c.success is None else 100 * c.success,
    ),
    (TableColumn("level", "level"), lambda c: c.level),
    (TableColumn("run", "run", number=False), lambda c: c.run or None),
    (TableColumn("task", "task", number=False), lambda c: c.task or None),
    (TableColumn("delta", "ΔS"), lambda c: c.score.verdict.delta_score if c.score else None),
    (TableColumn("raw", "raw IR"), lambda c: c.score.checkpoint.ir_raw if c.score else None),
    (
        TableColumn("floor", "rounding floor", hint="below it raw IR has fewer than two digits"),
        lambda c: c.score.checkpoint.rounding_floor if c.score else None,
    ),
    (
        TableColumn("eligible", "eligible", hint="anchors that count for SR, of all"),
        lambda c: c.score.checkpoint.eligible if c.score else None,
    ),
    (
        TableColumn("latent", "latent dist.", hint="median latent distance; near zero: collapse"),
        lambda c: c.score.checkpoint.median_latent_distance if c.score else None,
    ),
    (TableColumn("seed", "draw seed"), lambda c: c.protocol.seed),
    (
        TableColumn("neighbourhood", "d", hint="quantile of state distances that reaches partners"),
        lambda c: c.protocol.neighbourhood,
    ),
)


def _three_digits(value: float) -> str:
    return f"{value:.3f}"


_INTERVALS = {
    "ir": "ir_relative", "sr": "sr", "score": "score", "delta": "delta_score", "raw": "ir_raw"
}  # fmt: skip
_IF_SEVERAL = {"shift", "seed", "neighbourhood", "task"}
_SHOWN: dict[str, Callable[[float], str]] = {
    "seed": lambda v: f"{v:d}",
    "neighbourhood": lambda v: f"{v:g}",
    "level": lambda v: f"{v:g}",
    "success": lambda v: f"{v:.1f}",
    "eligible": lambda v: f"{v:d}",
    "decide": lambda v: f"{v:d}",
    "score": lambda v: f"{v:+.2f}",
    "delta": lambda v: f"{v:+.2f}",
    "floor": lambda v: f"{v:.1g}",
    "latent": lambda v: f"{v:.3g}",
}


def table(data: ReportData) -> tuple[list[TableColumn], list[Row]]:
    """The columns that hold anything (some: more than one value), and the rows, references last."""
    columns = [
        column
        for column, read in _COLUMNS
        if any(read(cell) is not None for cell in data.cells)
        and (column.key not in _IF_SEVERAL or len({read(cell) for cell in data.cells}) > 1)
        and (column.key != "among" or data.corrects)
    ]
    columns = [
        replace(column, title=data.level_name or "level") if column.key == "level" else column
        for column in columns
    ]
    kept = {column.key for column in columns}
    scale = _scale(data.cells)
    rows = []
    for cell in sorted(data.cells, key=lambda cell: cell.is_reference):
        values = {c.key: _value(c, read(cell), cell) for c, read in _COLUMNS if c.key in kept}
        rows.append(Row(cell, standing(cell), failed_by(cell), values, _strip(cell, scale)))
    return columns, rows


def _value(column: TableColumn, found: str | float | None, cell: Measurement) -> Value:
    if found is None:
        return Value("\N{EN DASH}", "")
    if isinstance(found, str):
        return Value(found, found)
    if not np.isfinite(found):
        return Value("not finite", "")
    shown = _SHOWN.get(column.key, _three_digits)
    interval = cell.interval(_INTERVALS.get(column.key, ""))
    return Value(_end(found, shown), repr(float(found)), shown_interval(interval, shown))


def shown_interval(interval: Interval | None, shown: Callable[[float], str] = _three_digits) -> str:
    """Both ends as text; empty without an interval, as of a number that is 1 by definition."""
    if interval is None or interval.lower == interval.upper:
        return ""
    return f"{_end(interval.lower, shown)} to {_end(interval.upper, shown)}"


def _end(value: float, shown: Callable[[float], str]) -> str:
    if not np.isfinite(value):
        return "\N{MINUS SIGN}\N{INFINITY}" if value < 0 else "\N{INFINITY}"
    return shown(value).replace("-", "\N{MINUS SIGN}")


def _scale(cells: Sequence[Measurement]) -> tuple[float, float]:
    """Log10 of the smallest and the largest quantile that a strip draws."""
    drawn = []
    for cell in cells:
        values = cell.score.checkpoint.anchor_values if cell.score else None
        if values is not None:
            both = np.concatenate([values.radius, values.different_state_distance])
            drawn.append(both[both > 0])
    if not any(map(len, drawn)):
        return 0.0, 1.0
    low, high = np.quantile(np.concatenate(drawn), (0.005, 0.995))
    return float(np.log10(low)), float(np.log10(high) + 1e-9)


def _strip(cell: Measurement, scale: tuple[float, float]) -> Strip | None:
    values = cell.score.checkpoint.anchor_values if cell.score else None
    if cell.score is None or values is None:
        return None
    low, high = scale

    def place(found: float) -> float:
        at = (np.log10(found) - low) / (high - low) if found > 0 else 0.0
        return round(100 * float(np.clip(at, 0, 1)), 1)

    def three(found: Sequence[float]) -> tuple[float, float, float]:
        first, middle, last = np.quantile(np.asarray(found), (0.1, 0.5, 0.9)).tolist()
        return place(first), place(middle), place(last)

    distance = values.different_state_distance
    eligible = distance[~np.isnan(distance)]
    wanted = cell.score.checkpoint.ir_raw + margin_of(cell)
    words = f"median R {np.median(values.radius):.3g}"
    words += f", median D {np.median(eligible):.3g}" if len(eligible) else ""
    return Strip(
        three(values.radius.tolist()),
        three(eligible.tolist()) if len(eligible) else None,
        place(wanted),
        f"{words}, D must exceed {wanted:.3g}",
    )
