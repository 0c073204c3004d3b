"""Follows work to its end, with progress on stderr; then verdict, JUnit file and exit code."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from xml.etree import ElementTree as ET

import typer
from acpc.console import Console
from acpc.contract import ScoreRequest
from acpc_client import AcpcClient, Operation, Outcome, Score, save_result, write_whole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from acpc_lab.campaigns import CampaignProgress, OnUpdate, Task, TaskState
from acpc_lab.cli import render
from acpc_lab.cli.command import Exit
from acpc_lab.cli.options import Followed, Gate, GateOption, Junit, ScoreOut, interruptible

if TYPE_CHECKING:
    from acpc_lab.sweeps import CellResult


class ScoreOptions(Followed):
    """What is done with the score of a job that is followed."""

    gate: GateOption = Gate.POINT
    junit: Junit = None
    out: ScoreOut = None


REFERENCE = "the reference: there for comparison, not judged"
"""What is said of a checkpoint that is its own reference."""
# The element of JUnit and the exit code of what did not pass, the worst first.
_ENDS = {
    Outcome.UNSPECIFIED: ("error", Exit.JOB_ENDED_BADLY),
    Outcome.FAILED: ("failure", Exit.SCREEN_FAILED),
    Outcome.DOES_NOT_FIT: ("failure", Exit.SCREEN_FAILED),
    Outcome.UNDECIDED: ("skipped", Exit.UNDECIDED),
}
_TYPES = {"failure": {"type": "failed"}, "error": {"type": "error"}, "skipped": {}}
# What XML 1.0 cannot hold, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Case(NamedTuple):
    """One verdict of a gate: of what, which, and why; without a score it is UNSPECIFIED."""

    name: str
    outcome: Outcome
    message: str


def settle(suite: str, cases: Sequence[Case], junit: Path | None) -> Exit:
    """Writes the JUnit file, where one is wanted; returns the exit code of the worst case."""
    if junit is not None:
        try:
            write_whole(junit, _junit(suite, cases))
        except OSError as error:
            wrong = f"cannot write {junit}: {error.strerror}"
            raise typer.BadParameter(wrong, param_hint="--junit") from error
    outcomes = {case.outcome for case in cases}
    return next((code for outcome, (_, code) in _ENDS.items() if outcome in outcomes), Exit.OK)


def _junit(suite: str, cases: Sequence[Case]) -> bytes:
    elements = [_ENDS.get(case.outcome, ("system-out", Exit.OK))[0] for case in cases]
    numbers = {"tests": str(len(cases))}
    for name, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        numbers[name] = str(elements.count(element))
    root = ET.Element("testsuites", numbers)
    held = ET.SubElement(root, "testsuite", {"name": suite, **numbers})
    for case, element in zip(cases, elements, strict=True):
        name, message = (_FORBIDDEN.sub("\ufffd", text) for text in (case.name, case.message))
        made = ET.SubElement(held, "testcase", {"name": name, "classname": suite})
        about = {"message": message, **_TYPES[element]} if element in _TYPES else {}
        ET.SubElement(made, element, about).text = message
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def conclude(
    suite: str,
    named: "Sequence[tuple[str, CellResult]]",
    gate: Gate | None,
    junit: Path | None,
    *,
    spoilt: bool = False,
) -> NoReturn:
    """Judges cells by a gate, writes the JUnit file, and exits with the code of the worst.

    A reference among others is there for comparison. Without a gate nothing that has a score fails.
    Of several the numbers decide while some have no score. What is ``spoilt`` ends badly.
    """
    cells, by = [cell for _, cell in named], gate
    if len(cells) > 1 and not all(cell.score for cell in cells):
        by = gate and Gate.POINT
    alone = all(cell.is_reference for cell in cells)
    cases = []
    for name, cell in named:
        message = reason(cell.score, gate) if cell.score else cell.problem
        if cell.score and cell.is_reference and not alone:
            message = REFERENCE
        message = message or f"{cell.state.value}: it has no score"
        cases.append(Case(name, _outcome(cell, by, alone), message))
    code = settle(suite, cases, junit)
    counts = Counter(case.outcome for case in cases)
    missing = sum(cell.score is None for cell in cells)
    if counts[Outcome.UNSPECIFIED] > missing:
        render.problem("the server gave no outcome this client knows; update the client")
        code = Exit.ERROR
    elif missing:
        render.note(f"{missing} of {len(cases)} have no score")
    elif code is Exit.SCREEN_FAILED and len(cases) > 1:
        surely = "surely " if gate is Gate.CONFIDENT else ""
        failed = counts[Outcome.FAILED] + counts[Outcome.DOES_NOT_FIT]
        render.note(f"{failed} of {len(cases)} {surely}fail the screen")
    elif code is Exit.UNDECIDED:
        judged = [cell.score for cell in cells if cell.score and (alone or not cell.is_reference)]
        bare = any(score.verdict.outcome is Outcome.INCONCLUSIVE for score in judged)
        more = "nothing passes without a reference; name one" if bare else "score more anchors"
        many = f"{counts[Outcome.UNDECIDED]} of {len(cases)} " if len(cases) > 1 else ""
        render.note(f"{many}undecided: {more}")
    raise typer.Exit(Exit.JOB_ENDED_BADLY if spoilt else code)


def _outcome(cell: "CellResult", gate: Gate | None, alone: bool) -> Outcome:
    """What a gate makes of a cell; the confident one has judged nothing without a reference."""
    if cell.score is None or gate is None:
        return Outcome.PASSED if cell.score else Outcome.UNSPECIFIED
    if cell.among is not None or (cell.is_reference and not alone):
        return cell.gated(gate)
    found = cell.score.gated(gate)
    unjudged = gate is Gate.CONFIDENT and found is Outcome.INCONCLUSIVE
    return Outcome.UNDECIDED if unjudged else found


def reason(score: Score, gate: str | None) -> str:
    """Why a score passes or not, beginning with the verdict that the gate goes by."""
    if gate == Gate.CONFIDENT and score.certainty:
        return f"{score.certainty} ({score.verdict.summary})"
    return score.headline()


_LINE_S = 60.0
_GO_ON = (
    "interrupted: {} goes on at the server",
    "  follow it: acpc show job {} --wait",
    "  cancel it: acpc cancel {}",
)
Show = Callable[[str, int, int, str], None]
"""Shows what is counted, how many are done, of how many (0: not known), and a remark."""


@contextmanager
def counted(first: str, *more: ProgressColumn, live: bool = True) -> Iterator[Show]:
    """Shows a count on stderr: a bar on a terminal where it is ``live``, else a line a minute.

    ``first`` is shown before the first count; ``more`` are further columns of the bar.
    """
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if render.QUIET.get() or not (live and console.is_terminal):
        yield _lines()
        return
    remarks = TextColumn("{task.fields[remark]}", markup=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, remarks, *more, console=console, transient=True) as bar:
        task = bar.add_task(first, total=None, remark="")

        def draw(what: str, done: int, total: int, remark: str) -> None:
            bar.update(task, description=what, completed=done, total=total or None, remark=remark)

        yield draw


def _lines() -> Show:
    """Shows the first count at once, then one a minute, and the last."""
    due = -math.inf

    def tell(what: str, done: int, total: int, remark: str) -> None:
        nonlocal due
        if time.monotonic() < due and not (total and done == total):
            return
        due = time.monotonic() + _LINE_S
        render.note(", ".join(filter(None, (f"{what} {done}/{total}" if total else what, remark))))

    return tell


@contextmanager
def shown(
    noun: str, before: str, answer: Callable[[Any], str] = lambda _: "", *, live: bool = True
) -> Iterator[OnUpdate[Any]]:
    """Shows a campaign: a line for each task that ends or waits, below them how many are done.

    ``noun`` is what tasks are called, ``before`` what goes on before there are any, and ``answer``
    words what came of one; empty: nothing did. A terminal has a bar where it is ``live``.
    """
    known: dict[str, TaskState] = {}
    away = False

    def update(now: CampaignProgress[Any]) -> None:
        nonlocal away
        if away != (now.away is not None):
            away = now.away is not None
            render.presence(now.away)
        first = not known and bool(now.tasks)
        for task in now.changed:
            last, known[task.id] = known.get(task.id), task.state
            ended = task.state.done or task.state is TaskState.WAITING
            # What a task was before the run began is no news.
            settled = first and task.state is TaskState.SUCCEEDED
            if ended and last is not task.state and not settled:
                words = answer(task) or _ended(task)
                render.note(f"[{now.done}/{len(now.tasks)}] {task.title}: {words}")
        if now.tasks:
            counts = [f"{count} {state.value}" for state, count in now.counts.items()]
            rate = f"{now.rate * 60:.3g} {noun} a minute" if now.rate else ""
            left = f"about {_left(now.seconds_left)}" if now.seconds_left else ""
            remark = "; ".join(filter(None, (", ".join(counts), rate, left)))
            show(f"{noun} done", now.done, len(now.tasks), remark)

    with counted(before, live=live) as show:
        yield update


def _ended(task: Task) -> str:
    problem = None if task.state.in_flight else task.problem
    why = f" ({problem.code}: {problem.message})" if problem else ""
    return f"{task.state.value}{why}"


def _left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min left"
    return f"{minutes} min {rest} s left" if minutes else f"{rest} s left"


def follow(
    client: AcpcClient, name: str, timeout: float | None, out: Path | None = None, said: str = ""
) -> Operation:
    """Shows a job until it ends, keeps its answer in a file, and returns it.

    ``said`` is a line before that: who has read it may interrupt.
    """
    with interruptible(line.format(name) for line in _GO_ON), counted("waiting") as show:
        if said:
            render.note(said)
        for last in client.operations.watch(name, timeout=timeout):
            name, progress = last.name, last.progress
            left = "" if progress.seconds_left is None else _left(progress.seconds_left)
            phase = progress.phase or last.state.name.lower()
            show(phase, progress.completed, progress.total, left)
    if out is not None and last.error is None:
        save_result(last, out)
    return last


def finish(
    jobs: Sequence[Operation], form: ScoreOptions, asked: Sequence[ScoreRequest] = ()
) -> NoReturn:
    """Prints how jobs ended, one whole and several as a row each, and exits accordingly.

    ``asked`` is what was asked for, where the server need not say it.
    """
    answered = [job for job in jobs if job.error is None]
    if form.json and answered:
        render.result(*answered)
    for job in jobs:
        if job.error is not None:
            render.error(job.error)
            render.note(f"  {job.name} {job.state.name.lower()}")
    for job in answered:
        if job.study is not None:
            if not form.json:
                render.prose(render.study_line(job.study))
            raise typer.Exit(Exit.OK)
    from acpc_lab.cli.cells import cells_of, results_table  # noqa: PLC0415  slow to import

    requests: Sequence[ScoreRequest | None] = asked or [job.request for job in jobs]
    cells = cells_of(jobs, requests)
    if not form.json and answered:
        said = render.asked(answered[0], shifts=len(jobs))
        if len(jobs) == 1:
            render.score(answered[0].result(), said)
        else:
            results_table(cells, asked=said)
    named = []
    for cell, request in zip(cells, requests, strict=True):
        named.append((f"{cell.name} under {cell.shift}" if request else cell.name, cell))
    conclude("acpc score", named, form.gate, form.junit)
