"""Says what is sure of all measurements together: which pass, where, and from which level on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from acpc_client import Outcome

from acpc_lab.evidence import FamilyWise, Sureness
from acpc_lab.report.model import ReportData

Place = tuple[str, str]
"""A task and a shift."""


@dataclass(frozen=True)
class Onset:
    """The lowest level from which on every run passes; empty: there is none.

    Attributes:
        seen: By the numbers as they are.
        alone: Surely, of this onset by itself.
        sure: Surely, and not wrong about any other task or shift either.
    """

    seen: str
    alone: str
    sure: str


def onsets(data: ReportData) -> dict[Place, Onset]:
    """The onset of every task under every shift that has levels."""
    places: dict[Place, dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, cell in enumerate(data.candidates):
        if cell.level is not None:
            places[cell.task, cell.shift][cell.level].append(index)
    downwards = {place: sorted(levels.items(), reverse=True) for place, levels in places.items()}
    sequences = [[found for _, found in levels] for levels in downwards.values()]
    alone = data.with_(family_wise=FamilyWise.NONE).family.onsets(sequences)
    sure = data.family.onsets(sequences)

    def level(levels: list[tuple[float, list[int]]], count: int) -> str:
        return f"{levels[count - 1][0]:g}" if count else ""

    return {
        place: Onset(level(levels, _passing(data, levels)), level(levels, one), level(levels, all_))
        for (place, levels), one, all_ in zip(downwards.items(), alone, sure, strict=True)
    }


def _passing(data: ReportData, levels: Iterable[tuple[float, list[int]]]) -> int:
    """How many levels, from the highest down, every run passes by the numbers as they are."""
    count = 0
    for _, found in levels:
        if any(data.candidates[index].outcome is not Outcome.PASSED for index in found):
            break
        count += 1
    return count


def everywhere(data: ReportData) -> dict[str, Sureness]:
    """How surely each checkpoint passes under every shift, or fails under one."""
    groups: dict[str, list[int]] = {}
    for index, cell in enumerate(data.candidates):
        groups.setdefault(cell.name, []).append(index)
    return dict(zip(groups, data.family.everywhere(list(groups.values())), strict=True))


def claims(data: ReportData) -> list[str]:
    """What is sure of all checkpoints, and what is not yet, in two lines; none without evidence.

    The first counts checkpoints, and the second sets beside it what the numbers alone would say.
    """
    each = [cell.among for cell in data.candidates if cell.among is not None]
    known = [among for among in each if among.alone is not None]
    if not known:
        return []
    several = len(data.shifts) > 1
    whole = everywhere(data)
    where = ("under every shift", "under at least one") if several else (f"under {data.shifts[0]}",)
    sure = f"{100 * data.family.confidence:.6g} % sure: of {_count(len(whole), 'checkpoint')}"
    found = [f"{sure}, {_shares(whole.values(), *where)}."]
    failing = {cell.name for cell in data.candidates if cell.outcome is not Outcome.PASSED}
    alone = len(set(whole) - failing)
    text = f"By the numbers alone {alone} {_verb(alone, 'pass', 'passes')}"
    if several:
        text += f"; of {_count(len(known), 'measurement')}, {_shares(known, sure='surely ')}"
    return [*found, " ".join([f"{text}.", *_needed(data)])]


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
    """How many anchors would probably decide what is undecided by itself."""
    found = [
        (cell.evidence.anchors_to_decide, cell.evidence.needed(cell.score.checkpoint.anchors))
        for cell in data.candidates
        if cell.score and cell.evidence and cell.evidence.anchors_to_decide
    ]
    if not found:
        return []
    words = [in_words.removeprefix("about ") for _, in_words in sorted(found)]
    half, most = words[(len(words) - 1) // 2], words[-1]
    if len(words) == 1:
        text = f"{most} anchors would probably decide the one that is undecided by itself."
    elif half == most:
        text = f"{most} anchors would probably decide those that are undecided by themselves."
    else:
        them = "those that are undecided by themselves"
        text = f"{half} anchors would probably decide half of {them}, {most} all of them."
    return [text[:1].upper() + text[1:]]


def _verb(number: int, many: str, one: str) -> str:
    return one if number == 1 else many


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
