"""Says what is sure of all measurements together: which pass, where, and from which level on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

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
    """What is sure of many measurements, in words; none without evidence."""
    each = [cell.among for cell in data.candidates if cell.among is not None]
    known = [among for among in each if among.alone is not None]
    if not known:
        return []
    found, words = [], f"{100 * data.family.confidence:.6g} % sure: of "
    if len(data.shifts) > 1:
        whole = list(everywhere(data).values())
        shares = _shares(whole, "under every shift", "under at least one")
        found.append(f"{words}{_count(len(whole), 'checkpoint')}, {shares}.")
        words = "Of "
    text = f"{words}{_count(len(known), 'measurement')}, {_shares(known)}"
    if any(among.alone is not among.outcome for among in known):
        plain = [replace(among, outcome=among.alone) for among in known]
        text += f"; one by one, without Holm's correction for so many, {_shares(plain)}"
    return [*found, f"{text}.", *_needed(data)]


def _shares(all_: Iterable[Sureness], passing: str = "", failing: str = "") -> str:
    count = Counter(found.outcome for found in all_)
    passed, failed = count[Outcome.PASSED], count[Outcome.FAILED]
    open_ = count.total() - passed - failed
    parts = (
        f"{passed} {_verb(passed, 'pass', 'passes')} {passing}",
        f"{failed} {_verb(failed, 'fail', 'fails')} {failing}",
        f"{open_} {_verb(open_, 'are', 'is')} undecided",
    )
    return "{}, {} and {}".format(*map(str.strip, parts))


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
