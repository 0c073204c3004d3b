"""Says what is sure of all measurements together: which pass, where, and from which level on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from acpc_client import Outcome

from acpc_lab.evidence import Sureness
from acpc_lab.report.model import ReportData, counted
from acpc_lab.report.verdicts import NONE, REFERENCE, Standing, standing, verdict_of
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
        Outcome.DOES_NOT_FIT: f"{cell.name} does not fit these data.",
    }.get(verdict.outcome, f"The screen is inconclusive about {cell.name} under {cell.shift}.")
    if where is REFERENCE:
        sentence = f"{cell.name} is a reference: it is compared with itself."
    certain = cell.score.certainty
    lines = (f"{certain[:1].upper()}{certain[1:]}." if certain else "", verdict.summary)
    notes = (*cell.score.fit_notes, *(cell.evidence.notes if cell.evidence else ()))
    return Headline(sentence, tuple(filter(None, (*lines, *notes))), where)


def claims(data: ReportData) -> list[str]:
    """Words what is sure of all checkpoints, of each measurement, and what more would decide."""
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
    sure = f"{100 * data.family.confidence:.6g} % sure"
    if data.correction.of_share:
        error = 100 * (1 - data.family.confidence)
        sure = f"At most {error:.6g} % of what is called sure is expected to be wrong"
    checkpoints = counted(len(whole), "checkpoint")
    lines = [f"{sure}: of {checkpoints}, {_shares(whole.values(), *places)}."]
    each = [cell.among for cell in data.candidates if cell.among and cell.among.alone is not None]
    if several and each:
        shares = _shares(each, sure="surely ")
        lines.append(f"Of {counted(len(each), 'measurement')}, {shares}.")
    return [*lines, *_needed(data)]


def everywhere(data: ReportData) -> dict[str, Sureness]:
    """Judges each checkpoint under all shifts together: sure to pass all, or to fail one."""
    groups: dict[str, list[int]] = {}
    for index, cell in enumerate(data.candidates):
        groups.setdefault(cell.name, []).append(index)
    return dict(zip(groups, data.family.everywhere(list(groups.values())), strict=True))


def failing(data: ReportData) -> list[str]:
    """Under which shifts each checkpoint surely fails, all cells considered; none without any."""
    found: dict[str, dict[str, None]] = {}
    for cell in data.candidates:
        if cell.among is not None and cell.among.outcome and cell.among.outcome.rejects:
            found.setdefault(cell.name, {})[cell.shift] = None  # once, of several seeds
    return [f"{name} surely fails under {', '.join(shifts)}." for name, shifts in found.items()]


def _shares(all_: Iterable[Sureness], passing: str = "", failing: str = "", sure: str = "") -> str:
    count = Counter(found.outcome for found in all_)
    passed, unknown = count[Outcome.PASSED], count[None]
    failed = count[Outcome.FAILED] + count[Outcome.DOES_NOT_FIT]
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
