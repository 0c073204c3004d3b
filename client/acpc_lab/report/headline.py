"""Says what is sure of all measurements together: which pass, where, and from which level on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from acpc_client import Outcome

from acpc_lab.evidence import Sureness
from acpc_lab.report.model import ReportData, counted
from acpc_lab.report.verdicts import NONE, PASSES, REFERENCE, Standing, standing, verdict_of
from acpc_lab.sweeps import CellResult


class Headline(NamedTuple):
    """The top of a page: a sentence and its explanation."""

    sentence: str
    lines: tuple[str, ...]
    standing: Standing | None = None


def headline(data: ReportData) -> Headline:
    """The verdict of a single cell, or the count over many, as far as they are measured."""
    if len(data.cells) == 1:
        return _single(data.cells[0])
    lines = claims(data)
    if data.pending:
        total = len(data.cells)
        done = total - data.pending
        # Rounded down: 100 % is a sweep that has ended.
        lines.insert(0, f"{100 * done // total} % done: {done} of {counted(total, 'measurement')}.")
    broken = sum(verdict_of(cell) is NONE for cell in data.cells)
    if broken:
        lines.append(f"{counted(broken, 'measurement')} gave no result; the table says why.")
    return Headline(lines[0], tuple(lines[1:]))


def _single(cell: CellResult) -> Headline:
    where = standing(cell)
    if cell.score is None:
        found = "has no result" if cell.state.done else "is not measured yet"
        problem = (cell.problem,) if cell.problem else ()
        return Headline(f"{cell.name} {found}.", problem, where)
    verdict = cell.score.verdict
    sentence = {
        Outcome.PASSED: f"{cell.name} passes the screen under {cell.shift}.",
        Outcome.FAILED: f"{cell.name} fails the screen under {cell.shift}.",
    }.get(verdict.outcome, f"The screen is inconclusive about {cell.name} under {cell.shift}.")
    if where is REFERENCE:
        sentence = f"{cell.name} is a reference: it is compared with itself."
    certain = cell.score.certainty
    lines = (f"{certain[:1].upper()}{certain[1:]}." if certain else "", verdict.summary)
    notes = cell.evidence.notes if cell.evidence else ()
    return Headline(sentence, tuple(filter(None, (*lines, *notes))), where)


def claims(data: ReportData) -> list[str]:
    """Words what is sure of all checkpoints, and what is not yet, in two lines.

    The first counts checkpoints, and the second sets beside it what the numbers alone would say.
    """
    several = len(data.shifts) > 1
    if not data.candidates:
        return ["Every checkpoint is a reference: none is compared with another."]
    if not any(cell.score for cell in data.candidates):
        where = "every shift" if several else data.shifts[0]
        return [f"No checkpoint is measured under {where} yet."]
    whole = everywhere(data)
    places = (
        ("under every shift", "under at least one") if several else (f"under {data.shifts[0]}",)
    )
    sure = f"{100 * data.family.confidence:.6g} % sure: of {counted(len(whole), 'checkpoint')}"
    failing = {cell.name for cell in data.candidates if cell.outcome is not Outcome.PASSED}
    alone = len(set(whole) - failing)
    text = f"By the numbers alone {alone} {_verb(alone, 'pass', 'passes')}"
    if several:
        each = [cell.among for cell in data.candidates if cell.among]
        known = [among for among in each if among.alone is not None]
        text += f"; of {counted(len(known), 'measurement')}, {_shares(known, sure='surely ')}"
    return [f"{sure}, {_shares(whole.values(), *places)}.", " ".join([f"{text}.", *_needed(data)])]


def everywhere(data: ReportData) -> dict[str, Sureness]:
    """Judges each checkpoint under all shifts together: sure to pass all, or to fail one."""
    groups: dict[str, list[int]] = {}
    for index, cell in enumerate(data.candidates):
        groups.setdefault(cell.name, []).append(index)
    return dict(zip(groups, data.family.everywhere(list(groups.values())), strict=True))


def failing(data: ReportData) -> list[str]:
    """Under which shifts each checkpoint surely fails, all cells considered; none without any."""
    found: dict[str, list[str]] = {}
    for cell in data.candidates:
        if cell.among is not None and cell.among.outcome is Outcome.FAILED:
            found.setdefault(cell.name, []).append(cell.shift)
    return [f"{name} surely fails under {', '.join(shifts)}." for name, shifts in found.items()]


def _shares(all_: Iterable[Sureness], passing: str = "", failing: str = "", sure: str = "") -> str:
    count = Counter(found.outcome for found in all_)
    passed, failed, unknown = count[Outcome.PASSED], count[Outcome.FAILED], count[None]
    open_ = count.total() - passed - failed - unknown
    parts = [
        f"{passed} {sure}{_verb(passed, 'pass', 'passes')} {passing}".strip(),
        f"{failed} {sure}{_verb(failed, 'fail', 'fails')} {failing}".strip(),
        f"{open_} {_verb(open_, 'are', 'is')} undecided",
        *([f"{unknown} {_verb(unknown, 'are', 'is')} not judged"] if unknown else []),
    ]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _needed(data: ReportData) -> list[str]:
    """Words how many anchors would probably decide what is undecided by itself."""
    found = [
        (wanted, cell.evidence.needed(cell.score.checkpoint.anchors))
        for cell in data.candidates
        if cell.score
        and cell.evidence
        and (wanted := cell.evidence.anchors_to_decide or cell.evidence.trajectories_to_decide)
    ]
    if not found:
        return []
    most = max(found)[1].removeprefix("about ")
    most = most if most.endswith("s") else f"{most} anchors"
    most = f"{most[:1].upper()}{most[1:]}"
    return [f"{most} would probably decide {counted(len(found), 'undecided measurement')}."]


def _verb(number: int, many: str, one: str) -> str:
    return one if number == 1 else many


class Onset(NamedTuple):
    """The lowest level from which on every run passes; empty: there is none.

    Attributes:
        seen: By the numbers as they are.
        sure: Surely, and not wrong about any other task or shift either.
    """

    seen: str = ""
    sure: str = ""


def onsets(data: ReportData) -> dict[tuple[str, str], Onset]:
    """The onset of every task under every shift that has levels."""
    places: dict[tuple[str, str], dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, cell in enumerate(data.candidates):
        if cell.level is not None:
            places[cell.task, cell.shift][cell.level].append(index)
    downwards = {place: sorted(levels.items(), reverse=True) for place, levels in places.items()}
    sequences = [[found for _, found in levels] for levels in downwards.values()]
    counts = zip(
        (_passing(data, sequence) for sequence in sequences),
        data.family.onsets(sequences),
        strict=True,
    )
    return {
        place: Onset(*(f"{levels[count - 1][0]:g}" if count else "" for count in found))
        for (place, levels), found in zip(downwards.items(), counts, strict=True)
    }


def _passing(data: ReportData, downwards: Sequence[Sequence[int]]) -> int:
    """Counts the levels, from the highest down, that every run passes by the numbers."""
    for count, found in enumerate(downwards):
        if any(data.candidates[index].outcome is not Outcome.PASSED for index in found):
            return count
    return len(downwards)


class OutcomeCounts(NamedTuple):
    """Outcomes of one task under one shift, references not counted.

    Attributes:
        sure: How many surely pass.
    """

    task: str
    shift: str
    passed: int
    total: int
    pending: int
    onset: Onset
    sure: int


def tallies(data: ReportData) -> list[list[OutcomeCounts]]:
    """Counts by task and shift, a row per task; none for a report of a few cells."""
    if not data.has_levels:
        return []
    found = onsets(data)

    def tally(task: str, shift: str) -> OutcomeCounts:
        cells = [c for c in data.candidates if (c.task, c.shift) == (task, shift)]
        return OutcomeCounts(
            task,
            shift,
            passed=sum(verdict_of(cell) is PASSES for cell in cells),
            total=len(cells),
            pending=sum(not cell.state.done for cell in cells),
            onset=found.get((task, shift), Onset()),
            sure=sum(c.among is not None and c.among.outcome is Outcome.PASSED for c in cells),
        )

    return [[tally(task, shift) for shift in data.shifts] for task in data.tasks]
