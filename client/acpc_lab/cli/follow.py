"""Follows work to its end: progress on stderr, as a bar or in lines; then verdict and exit code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from acpc.contract import ScoreRequest
from acpc_client import AcpcClient, Operation, StudyResult, save_result
from acpc_client.errors import ServerAway, extended
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from acpc_lab.campaigns import CampaignProgress, OnUpdate, Task, TaskState
from acpc_lab.cli import render
from acpc_lab.cli.command import Exit
from acpc_lab.cli.gates import ScoreOptions, conclude
from acpc_lab.cli.options import interruptible

_LINE_S = 60.0
_LEFT = (
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
    console = render.console()
    if render.is_quiet():
        yield lambda what, done, total, remark: None
        return
    if not (live and console.is_terminal):
        yield _lines()
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    remarks = TextColumn("{task.fields[remark]}", markup=False)
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
    noun: str,
    before: str,
    answer: Callable[[Any], str] = lambda _: "",
    *,
    live: bool = True,
) -> Iterator[OnUpdate[Any]]:
    """Shows a campaign: a line for each task that ends or waits, below them how many are done.

    Args:
        noun: What a task is called, in the plural.
        before: What goes on before there are tasks.
        answer: The answer of a task in one line; empty: it has none.
        live: Whether a terminal has a bar.
    """
    known: dict[str, TaskState] = {}
    away = False

    with counted(before, live=live) as show:

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
                show(f"{noun} done", now.done, len(now.tasks), _remark(now, noun))

        yield (lambda now: None) if render.is_quiet() else update


def _ended(task: Task) -> str:
    problem = None if task.state.in_flight else task.problem
    why = f" ({problem.code}: {problem.message})" if problem else ""
    return f"{task.state.value}{why}"


def _remark(now: CampaignProgress[Any], noun: str) -> str:
    """How many tasks are in which state, and how long it takes."""
    counts = ", ".join(f"{count} {state.value}" for state, count in now.counts.items())
    rate = f"; {now.rate * 60:.3g} {noun} a minute" if now.rate else ""
    if not now.seconds_left:
        return f"{counts}{rate}"
    minutes = round(now.seconds_left / 60)
    left = f"{minutes} min" if minutes else f"{round(now.seconds_left)} s"
    left = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else left
    return f"{counts}{rate}; about {left} left"


@contextmanager
def submitting(request_id: str) -> Iterator[str]:
    """Says how to find the job again, where its submission ends without an answer.

    Raises typer.Exit: It was interrupted; ServerAway: The server was away for too long.
    """
    again = f"it may have the job: give the same command with --request-id {request_id}"
    try:
        with interruptible([f"interrupted before the server answered; {again}"]):
            yield request_id
    except ServerAway as away:
        if away.sent:
            raise extended(away, again) from None
        raise


def follow(
    client: AcpcClient, name: str, *, timeout: float | None, out: Path | None = None, said: str = ""
) -> Operation:
    """Shows a job until it ends, keeps its answer in a file, and returns it.

    ``said`` is a line before that: who has read it may interrupt.
    Raises typer.Exit: It was interrupted; AcpcError: The job cannot be watched, or ``timeout``
    passed.
    """
    with interruptible(line.format(name) for line in _LEFT), counted("waiting") as show:
        if said:
            render.note(said)
        for last in client.operations.watch(name, timeout=timeout):
            name, progress, left = last.name, last.progress, ""
            if progress.seconds_left is not None:
                minutes, rest = divmod(round(progress.seconds_left), 60)
                left = f"{minutes} min {rest} s left" if minutes else f"{rest} s left"
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

    Raises typer.Exit: Always; AcpcError: A job ended with an answer that cannot be read.
    """
    answered = [job for job in jobs if job.error is None]
    if form.json and answered:
        render.result(*answered)
    for job in jobs:
        failed(job)
    for job in answered:
        if job.study is not None:
            if not form.json:
                render.prose(study_line(job.study))
            raise typer.Exit(Exit.OK)
    from acpc_lab.cli import sweep  # noqa: PLC0415  slow to import

    requests = asked or [job.request for job in jobs]
    cells = sweep.cells_of(jobs, requests)
    if not form.json and answered:
        said = render.asked(answered[0], shifts=len(jobs))
        if len(jobs) == 1:
            render.score(answered[0].result(), asked=said, wide=form.wide)
        else:
            sweep.results_table(cells, form.form, asked=said)
    named = [(cell.name + f" under {cell.shift}" * (request is not None), cell)
             for cell, request in zip(cells, requests, strict=True)]  # fmt: skip
    conclude("acpc score", named, form.gate, form.junit)


def failed(operation: Operation) -> None:
    """Prints why a job has no answer, and which job it is."""
    if operation.error is not None:
        render.error(operation.error)
        render.note(f"  {operation.name} {operation.state.name.lower()}")


def study_line(study: StudyResult) -> str:
    """A study in one line."""
    names = ", ".join(study.columns)
    return f"{study.kind} study of {study.checkpoint.name}: {study.rows} rows of {names}"
