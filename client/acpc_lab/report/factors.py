"""Finds which factor of variation breaks which checkpoint, and from which level on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from acpc_client import Interval, Outcome, Thresholds

from acpc_lab.report.model import Measurement, ReportData
from acpc_lab.report.tables import shown_interval

_STEPS = 4


@dataclass(frozen=True)
class Placed:
    """A measurement under a factor at a level."""

    factor: str
    level: float
    cell: Measurement

    @property
    def fails(self) -> bool:
        """Whether it misses a threshold; of a reference, whose relative IR is 1, only SR's."""
        score = self.cell.score
        if score is None:
            return False
        if self.cell.is_reference:
            return not score.verdict.sr_passed
        return self.cell.outcome is Outcome.FAILED

    @property
    def surely_fails(self) -> bool:
        """Whether it surely does, among all cells of the report.

        Not said of a reference: it is no member of the family that is corrected for its size.
        """
        among = self.cell.among
        return self.fails and among is not None and among.outcome is Outcome.FAILED

    @property
    def surely_passes(self) -> bool:
        """Whether it surely passes, among all cells of the report."""
        return self.cell.among is not None and self.cell.among.outcome is Outcome.PASSED


@dataclass(frozen=True)
class Heat:
    """One number of a heat table; ``shade`` names a colour of the page, empty for none.

    Attributes:
        place: Checkpoint and level, for a window too narrow for columns.
    """

    text: str
    interval: str = ""
    shade: str = ""
    tip: str = ""
    place: str = ""


@dataclass(frozen=True)
class HeatTable:
    """One quantity by factor, and by checkpoint and level."""

    title: str
    note: str
    rows: tuple[tuple[str, tuple[Heat, ...]], ...]


@dataclass(frozen=True)
class Onset:
    """The mildest level at which a checkpoint fails under a factor, in words; or that it holds.

    Attributes:
        sure: From where it surely fails, or up to where it surely passes.
        role: Colour of ``seen``.
    """

    factor: str
    seen: str
    sure: str = ""
    role: str = "soft"


@dataclass(frozen=True)
class FactorSection:
    """What the section shows.

    Attributes:
        columns: Checkpoints, each with its levels.
        breaks: A row per checkpoint: its name, and an onset for every factor.
        sure: What "surely" means there, in words.
    """

    factors: tuple[str, ...]
    columns: tuple[tuple[str, tuple[float, ...]], ...]
    breaks: tuple[tuple[str, tuple[Onset, ...]], ...]
    tables: tuple[HeatTable, ...]
    sure: str


def placed(data: ReportData) -> list[Placed]:
    """The measurements under groups of given views that are named ``factor:level``."""
    return [Placed(*cell.factor, cell) for cell in data.cells if cell.factor is not None]


def factor_section(data: ReportData) -> FactorSection | None:
    """The section; None when nothing was measured under a factor."""
    cells = placed(data)
    if not cells:
        return None
    factors = tuple(dict.fromkeys(item.factor for item in cells))
    names = tuple(dict.fromkeys(_name(item.cell) for item in cells))
    levels = tuple(sorted({item.level for item in cells}))
    at = {(_name(item.cell), item.factor, item.level): item for item in cells}
    columns = tuple((name, levels) for name in names)

    def table(title: str, note: str, heat: Callable[[Measurement], Heat]) -> HeatTable:
        def row(factor: str) -> tuple[Heat, ...]:
            found = []
            for name, level in ((name, level) for name in names for level in levels):
                item = at.get((name, factor, level))
                shown = Heat("") if item is None else heat(item.cell)
                found.append(replace(shown, place=f"{name} {level:.2g}"))
            return tuple(found)

        return HeatTable(title, note, tuple((factor, row(factor)) for factor in factors))

    tables = [
        table("Relative IR", "and raw IR of the reference; lower is better", _ir),
        table("SR", "higher is better", _sr),
    ]
    if any(cell.certified is not None for cell in data.cells):
        note = "of the anchors whose plan no drawn view changes, for certain; higher is better"
        tables.append(table("Certified fraction", note, _certified))
    breaks = tuple(
        (
            name,
            tuple(
                _onset(factor, [at.get((name, factor, x)) for x in levels]) for factor in factors
            ),
        )
        for name in names
    )
    together = f"{100 * data.family.confidence:g} % sure of all of them together"
    sure = together if data.corrects else "each by itself"
    return FactorSection(factors, columns, breaks, tuple(tables), sure)


def _name(cell: Measurement) -> str:
    return " \N{MIDDLE DOT} ".join(filter(None, (cell.task, cell.name)))


def _onset(factor: str, found: Sequence[Placed | None]) -> Onset:
    known = [item for item in found if item is not None and item.cell.score is not None]
    seen = [item.level for item in known if item.fails]
    sure = [item.level for item in known if item.surely_fails]
    if not known:
        return Onset(factor, "\N{EN DASH}")
    if seen:
        words = f"surely from {sure[0]:.2g}" if sure else ""
        return Onset(factor, f"from {seen[0]:.2g}", words, "fail")
    judged = any(item.cell.among is not None and item.cell.among.alone for item in known)
    held = [item.level for item in takewhile(lambda item: item.surely_passes, known)]
    if judged and not held:
        return Onset(factor, "undecided", role="open")
    return Onset(factor, "holds", f"surely up to {held[-1]:.2g}" if held else "", "pass")


def _limits(cell: Measurement) -> Thresholds:
    assert cell.score is not None  # noqa: S101 - asked of measured cells alone
    return cell.score.verdict.thresholds


def _missing(cell: Measurement) -> Heat:
    return Heat("\N{HORIZONTAL ELLIPSIS}" if cell.pending else "\N{MULTIPLICATION SIGN}")


def _ir(cell: Measurement) -> Heat:
    if cell.score is None:
        return _missing(cell)
    found, limit = cell.score.verdict.ir_relative, _limits(cell).ir
    raw = f"raw {cell.score.checkpoint.ir_raw:.2g}"
    if found is None or cell.is_reference:
        return Heat(raw, tip="the reference, whose relative IR is 1" * cell.is_reference)
    far = 0.0 if not limit or found <= 0 else math.log(found / limit) / math.log(4)
    return Heat(f"{found:.2f}", _ends(cell.interval("ir_relative")), _shade(-far), raw)


def _sr(cell: Measurement) -> Heat:
    if cell.score is None:
        return _missing(cell)
    found, limit = cell.score.checkpoint.sr, _limits(cell).sr
    shade = ""
    if limit:
        beyond = (
            (found - limit) / (1 - limit) if found >= limit and limit < 1 else found / limit - 1
        )
        shade = _shade(beyond)
    return Heat(f"{found:.2f}", _ends(cell.interval("sr")), shade)


def _certified(cell: Measurement) -> Heat:
    share = cell.certified
    if share is None:
        return Heat("")
    tip = f"{share.held} of {share.of} anchors{share.source}"
    return Heat(f"{share.rate:.2f}", _ends(share.interval()), _shade(share.rate), tip)


def _ends(interval: Interval | None) -> str:
    return shown_interval(interval, "{:.2f}".format)


def _shade(beyond: float) -> str:
    """Four shades on either side of a threshold, by how far beyond it, 1 being the farthest."""
    steps = min(_STEPS, math.ceil(_STEPS * math.sqrt(abs(beyond))))
    return f"{'pass' if beyond >= 0 else 'fail'}-{max(1, steps)}"
