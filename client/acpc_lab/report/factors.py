"""Finds which factor of variation breaks which checkpoint, and from which level on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from acpc.contract import beside
from acpc_client import Outcome

from acpc_lab.report.model import Measurement, ReportData
from acpc_lab.report.tables import shown_interval

_STEPS = 4


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
class Break:
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
    """Content of the section.

    Attributes:
        names: Checkpoints, each with all the levels.
        breaks: A row per checkpoint: its name, and where it breaks under every factor.
        sure: What "surely" means there, in words.
    """

    factors: tuple[str, ...]
    names: tuple[str, ...]
    levels: tuple[float, ...]
    breaks: tuple[tuple[str, tuple[Break, ...]], ...]
    tables: tuple[HeatTable, ...]
    sure: str


def fails(cell: Measurement) -> bool:
    """Whether it misses a threshold; of a reference, whose relative IR is 1, only SR's."""
    if cell.score is None or not cell.is_reference:
        return cell.outcome is Outcome.FAILED
    return not cell.score.verdict.sr_passed


def _surely(cell: Measurement, outcome: Outcome) -> bool:
    """Whether it surely fails or passes, among all cells of the report; nothing of a reference."""
    return cell.among is not None and cell.among.outcome is outcome


def factor_section(data: ReportData) -> FactorSection | None:
    """The section; None when nothing was measured under a factor."""
    at = {(cell.title, *cell.place): cell for cell in data.cells if cell.place is not None}
    if not at:
        return None
    names = tuple(dict.fromkeys(name for name, _, _ in at))
    factors = tuple(dict.fromkeys(factor for _, factor, _ in at))
    levels = tuple(sorted({level for _, _, level in at}))

    def table(title: str, note: str, heat: Callable[[Measurement], Heat]) -> HeatTable:
        def row(factor: str) -> tuple[Heat, ...]:
            found = []
            for name, level in ((name, level) for name in names for level in levels):
                cell = at.get((name, factor, level))
                shown = Heat("") if cell is None else heat(cell)
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

    def breaks(name: str, factor: str) -> Break:
        return _break(factor, [(x, c) for x in levels if (c := at.get((name, factor, x)))])

    found = tuple((name, tuple(breaks(name, factor) for factor in factors)) for name in names)
    together = f"{100 * data.family.confidence:g} % sure of all of them together"
    sure = together if data.corrects else "each by itself"
    return FactorSection(factors, names, levels, found, tuple(tables), sure)


def _break(factor: str, placed: Sequence[tuple[float, Measurement]]) -> Break:
    known = [(level, cell) for level, cell in placed if cell.score is not None]
    seen = [(level, cell) for level, cell in known if fails(cell)]
    if not known:
        return Break(factor, "\N{EN DASH}")
    if seen:
        sure = [level for level, cell in seen if _surely(cell, Outcome.FAILED)]
        words = f"surely from {sure[0]:.2g}" if sure else ""
        return Break(factor, f"from {seen[0][0]:.2g}", words, "fail")
    judged = any(cell.among is not None and cell.among.alone for _, cell in known)
    held = list(takewhile(lambda item: _surely(item[1], Outcome.PASSED), known))
    if judged and not held:
        return Break(factor, "undecided", role="open")
    return Break(factor, "holds", f"surely up to {held[-1][0]:.2g}" if held else "", "pass")


def _missing(cell: Measurement) -> Heat:
    return Heat("\N{HORIZONTAL ELLIPSIS}" if cell.pending else "\N{MULTIPLICATION SIGN}")


def _ends(cell: Measurement, name: str) -> str:
    return shown_interval(cell.interval(name), ".2f")


def _ir(cell: Measurement) -> Heat:
    if cell.score is None:
        return _missing(cell)
    found, limit = cell.score.verdict.ir_relative, cell.score.verdict.thresholds.ir
    raw = f"raw {cell.score.checkpoint.ir_raw:.2g}"
    if found is None or cell.is_reference:
        return Heat(raw, tip="the reference, whose relative IR is 1" * cell.is_reference)
    far = 0.0 if found <= 0 else math.log(found / limit) / math.log(4)
    return Heat(beside(found, limit, ".2f"), _ends(cell, "ir_relative"), _shade(-far), raw)


def _sr(cell: Measurement) -> Heat:
    if cell.score is None:
        return _missing(cell)
    found, limit = cell.score.checkpoint.sr, cell.score.verdict.thresholds.sr
    room = 1 - limit if found >= limit and limit < 1 else limit
    shade = _shade((found - limit) / room)
    return Heat(beside(found, limit, ".2f"), _ends(cell, "sr"), shade)


def _certified(cell: Measurement) -> Heat:
    share = cell.certified
    if share is None:
        return Heat("")
    tip = f"{share.held} of {share.of} anchors{share.source}"
    ends = shown_interval(share.interval(), ".2f")
    return Heat(f"{share.rate:.2f}", ends, _shade(share.rate), tip)


def _shade(beyond: float) -> str:
    """Four shades on either side of a threshold, by how far beyond it, 1 being the farthest."""
    steps = min(_STEPS, math.ceil(_STEPS * math.sqrt(abs(beyond))))
    return f"{'pass' if beyond >= 0 else 'fail'}-{max(1, steps)}"
