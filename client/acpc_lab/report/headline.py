"""Sums up the verdict of the whole report in a few words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acpc_client import Interval, Outcome

from acpc_lab.report.claims import Onset, claims, onsets
from acpc_lab.report.model import Measurement, ReportData
from acpc_lab.report.tables import (
    FAILS,
    LIKELY_FAILS,
    LIKELY_PASSES,
    NONE,
    PASSES,
    PENDING,
    REFERENCE,
    Standing,
    shown_interval,
    standing,
    verdict_of,
)


@dataclass(frozen=True)
class Figure:
    """One number of the headline, with what it has to reach."""

    name: str
    value: str
    wanted: str
    standing: Standing | None = None
    interval: str = ""


@dataclass(frozen=True)
class Headline:
    """What stands on top: a sentence, what explains it, and a few numbers."""

    sentence: str
    lines: tuple[str, ...]
    figures: tuple[Figure, ...] = ()
    standing: Standing | None = None


@dataclass(frozen=True)
class Tally:
    """Outcomes of one task under one shift, references not counted.

    Attributes:
        sure: How many surely pass; None where nothing is known of that.
        alone: The same of each by itself.
    """

    task: str
    shift: str
    passed: int
    total: int
    pending: int
    onset: Onset
    sure: int | None
    alone: int | None


def headline(data: ReportData) -> Headline:
    """The verdict of a single cell, or the count over many, as far as they are measured."""
    if len(data.cells) == 1:
        return _single(data.cells[0])
    total = len(data.cells)
    judged = data.candidates
    lines = claims(data) or _counted(data, judged)
    if data.pending:
        done = total - data.pending
        # Rounded down: 100 % is a sweep that has ended.
        lines.insert(0, f"{100 * done // total} % done: {done} of {_count(total, 'measurement')}.")
    broken = sum(verdict_of(cell) is NONE for cell in data.cells)
    if broken:
        lines.append(f"{_count(broken, 'measurement')} gave no result; the table says why.")
    return Headline(lines[0], tuple(lines[1:]))


def _counted(data: ReportData, judged: Iterable[Measurement]) -> list[str]:
    """How many checkpoints, and pairs of checkpoint and shift, pass of those that are measured."""
    names: dict[str, list[Standing]] = {}
    for cell in judged:
        names.setdefault(cell.name, []).append(verdict_of(cell))
    if not names:
        return ["Every checkpoint is a reference: none is compared with another."]
    whole = [found for found in names.values() if PENDING not in found]
    everywhere = sum(set(found) == {PASSES} for found in whole)
    ended = [one for found in names.values() for one in found if one is not PENDING]
    where = "every shift" if len(data.shifts) > 1 else data.shifts[0]
    if len(whole) == len(names):
        lines = [f"{_passing(everywhere, len(names), 'checkpoint')} under {where}."]
    elif whole:
        number = _count(len(whole), "checkpoint")
        lines = [f"Of {number} measured under {where}, {everywhere} {_verb(everywhere)}."]
    else:
        lines = [f"No checkpoint is measured under {where} yet."]
    if len(data.shifts) > 1 and ended:
        passed = ended.count(PASSES)
        far = " so far" if data.pending else ""
        pairs = _passing(passed, len(ended), "pair", " of checkpoint and shift")
        lines.append(f"{pairs}{far}.")
    return lines


def _passing(part: int, whole: int, noun: str, more: str = "") -> str:
    return f"{part} of {_count(whole, noun)}{more} {_verb(part)}"


def _verb(number: int) -> str:
    return "passes" if number == 1 else "pass"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _single(cell: Measurement) -> Headline:
    where = standing(cell)
    if cell.score is None:
        found = "is not measured yet" if cell.pending else "has no result"
        return Headline(
            f"{cell.name} {found}.", tuple(filter(None, [cell.problem])), standing=where
        )
    verdict = cell.score.verdict
    limits = verdict.thresholds
    sentence = {
        Outcome.PASSED: f"{cell.name} passes the screen under {cell.shift}.",
        Outcome.FAILED: f"{cell.name} fails the screen under {cell.shift}.",
    }.get(verdict.outcome, f"The screen is inconclusive about {cell.name} under {cell.shift}.")
    if where is REFERENCE:
        sentence = f"{cell.name} is a reference: it is compared with itself."
    relative, score = verdict.ir_relative, verdict.score
    ir, sr, s = map(cell.interval, ("ir_relative", "sr", "score"))
    figures = (
        Figure(
            "relative IR",
            "unknown" if relative is None else f"{relative:.3f}",
            f"at most {limits.ir:g}" if limits.ir is not None else "",
            _met(verdict.ir_passed, ir, limits.ir),
            shown_interval(ir),
        ),
        Figure(
            "SR",
            f"{cell.score.checkpoint.sr:.3f}",
            f"at least {limits.sr:g}" if limits.sr is not None else "",
            _met(verdict.sr_passed, sr, limits.sr),
            shown_interval(sr),
        ),
        Figure(
            "S",
            "unknown" if score is None else f"{score:+.2f}".replace("-", "\N{MINUS SIGN}"),
            "at least 0",
            _met(None if score is None else score >= 0, s, 0.0),
            shown_interval(s, "{:+.2f}".format),
        ),
    )
    certain = cell.score.certainty
    lines = (f"{certain[:1].upper()}{certain[1:]}." if certain else "", verdict.summary)
    notes = cell.evidence.notes if cell.evidence else ()
    return Headline(sentence, tuple(filter(None, (*lines, *notes))), figures, where)


def _met(passed: bool | None, interval: Interval | None, limit: float | None) -> Standing:
    """Whether a requirement is met; in doubt where its threshold lies within the interval."""
    if passed is None:
        return NONE
    doubt = interval is not None and limit is not None and interval.lower < limit < interval.upper
    if doubt:
        return LIKELY_PASSES if passed else LIKELY_FAILS
    return PASSES if passed else FAILS


def tallies(data: ReportData) -> list[list[Tally]]:
    """Counts by task and shift, a row per task; none for a report of a few cells."""
    if not data.has_levels:
        return []
    found = onsets(data)

    def tally(task: str, shift: str) -> Tally:
        cells = [c for c in data.candidates if (c.task, c.shift) == (task, shift)]
        among = [c.among for c in cells if c.among is not None]
        judged = any(c.evidence is not None for c in cells)
        return Tally(
            task,
            shift,
            passed=sum(verdict_of(cell) is PASSES for cell in cells),
            total=len(cells),
            pending=sum(cell.pending for cell in cells),
            onset=found.get((task, shift), Onset("", "", "")),
            sure=sum(a.outcome is Outcome.PASSED for a in among) if judged else None,
            alone=sum(a.alone is Outcome.PASSED for a in among) if judged else None,
        )

    return [[tally(task, shift) for shift in data.shifts] for task in data.tasks]
