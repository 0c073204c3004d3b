"""Sums up the verdict of the whole report in a few words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acpc_client import Outcome

from acpc_lab.report.model import Measurement, ReportData
from acpc_lab.report.tables import FAILS, NONE, PASSES, Standing, standing


@dataclass(frozen=True)
class Figure:
    """One number of the headline, with what it has to reach."""

    name: str
    value: str
    wanted: str
    standing: Standing | None = None


@dataclass(frozen=True)
class Headline:
    """What stands on top: a sentence, what explains it, and a few numbers."""

    sentence: str
    lines: tuple[str, ...]
    figures: tuple[Figure, ...] = ()
    standing: Standing | None = None


@dataclass(frozen=True)
class Tally:
    """Outcomes of one task under one shift."""

    task: str
    shift: str
    passed: int
    total: int
    onset: str


def headline(data: ReportData) -> Headline:
    """The verdict of a single cell, or the count over many."""
    if len(data.cells) == 1:
        return _single(data.cells[0])
    cells = data.cells
    passed = sum(cell.outcome is Outcome.PASSED for cell in cells)
    names: dict[str, list[Measurement]] = {}
    for cell in cells:
        names.setdefault(cell.name, []).append(cell)
    everywhere = sum(all(c.outcome is Outcome.PASSED for c in found) for found in names.values())
    lines = []
    if len(data.shifts) > 1:
        sentence = f"{everywhere} of {_count(len(names), 'checkpoint')} pass under every shift."
        lines.append(f"{passed} of {len(cells)} pairs of checkpoint and shift pass.")
    else:
        sentence = f"{passed} of {_count(len(names), 'checkpoint')} pass under {data.shifts[0]}."
    broken = sum(cell.score is None for cell in cells)
    if broken:
        lines.append(f"{_count(broken, 'measurement')} gave no result; the table says why.")
    references = sum(all(c.is_reference for c in found) for found in names.values())
    if references:
        lines.append(
            f"{_count(references, 'reference')} among them cannot pass: their relative IR is 1."
        )
    trapped = [c for c in cells if c.score and c.score.verdict.ir_passed and not _separates(c)]
    if trapped:
        lines.append(
            f"{_count(len(trapped), 'measurement')} would pass on IR alone: SR finds that "
            "different states are not told apart."
        )
    return Headline(sentence, tuple(lines))


def _separates(cell: Measurement) -> bool:
    return cell.score is not None and cell.score.verdict.sr_passed


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _single(cell: Measurement) -> Headline:
    if cell.score is None:
        return Headline(f"{cell.name} has no result.", (cell.problem,), standing=NONE)
    verdict = cell.score.verdict
    limits = verdict.thresholds
    sentence = {
        Outcome.PASSED: f"{cell.name} passes the screen under {cell.shift}.",
        Outcome.FAILED: f"{cell.name} fails the screen under {cell.shift}.",
    }.get(verdict.outcome, f"The screen is inconclusive about {cell.name} under {cell.shift}.")
    relative, score = verdict.ir_relative, verdict.score
    figures = (
        Figure(
            "relative IR",
            "unknown" if relative is None else f"{relative:.3f}",
            f"at most {limits.ir:g}" if limits.ir is not None else "",
            _met(verdict.ir_passed),
        ),
        Figure(
            "SR",
            f"{cell.score.checkpoint.sr:.3f}",
            f"at least {limits.sr:g}" if limits.sr is not None else "",
            _met(verdict.sr_passed),
        ),
        Figure(
            "S",
            "unknown" if score is None else f"{score:+.2f}".replace("-", "\N{MINUS SIGN}"),
            "at least 0",
            _met(None if score is None else score >= 0),
        ),
    )
    return Headline(sentence, (verdict.summary,), figures, standing(cell))


def _met(passed: bool | None) -> Standing:
    return NONE if passed is None else PASSES if passed else FAILS


def tallies(data: ReportData) -> list[list[Tally]]:
    """Counts by task and shift, a row per task; none for a report of a few cells."""
    if not data.has_levels:
        return []
    return [[_tally(data, task, shift) for shift in data.shifts] for task in data.tasks]


def _tally(data: ReportData, task: str, shift: str) -> Tally:
    cells = [cell for cell in data.cells if cell.task == task and cell.shift == shift]
    passed = sum(standing(cell) is PASSES for cell in cells)
    return Tally(task, shift, passed, len(cells), _onset(cells))


def _onset(cells: Iterable[Measurement]) -> str:
    """The lowest level from which on every run of every higher level passes too."""
    by_level: dict[float, list[bool]] = {}
    for cell in cells:
        if cell.level is not None:
            by_level.setdefault(cell.level, []).append(cell.outcome is Outcome.PASSED)
    onset = None
    for level in sorted(by_level, reverse=True):
        if not all(by_level[level]):
            break
        onset = level
    return "" if onset is None else f"{onset:g}"
