"""Shows on stderr how far work is: a bar on a terminal, or lines in a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from acpc_lab.campaigns import CampaignProgress, OnUpdate, T, TaskState, TaskStatus
from acpc_lab.cli import render

_LINE_S = 60.0

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


@dataclass(frozen=True)
class ProgressView(Generic[T]):
    """How the progress of one kind of tasks is worded.

    Attributes:
        noun: What a task is called, in the plural.
        before: What goes on before there are tasks.
        answer: The answer of a task in one line; empty: it has none.
    """

    noun: str
    before: str
    answer: Callable[[TaskStatus[T]], str] = lambda status: ""

    def remark(self, now: CampaignProgress[T]) -> str:
        """How many tasks are in which state, and how long it takes."""
        counts = ", ".join(f"{count} {state.value}" for state, count in now.counts.items())
        rate = f"; {now.rate * 60:.3g} {self.noun} a minute" if now.rate else ""
        left = f"; about {_duration(now.seconds_left)} left" if now.seconds_left else ""
        return f"{counts}{rate}{left}"

    def line(self, status: TaskStatus[T]) -> str:
        """A task that has ended, or that waits for its server."""
        answer = self.answer(status)
        if answer:
            return answer
        problem = None if status.state.in_flight else status.problem
        why = f" ({problem.code}: {problem.message})" if problem else ""
        return f"{status.state.value}{why}"


@contextmanager
def shown(view: ProgressView[T], *, live: bool) -> Iterator[OnUpdate[T]]:
    """Shows a campaign: a line for each task that ends or waits, below them how many are done."""
    known: dict[str, TaskState] = {}
    away = False

    with counted(view.before, live=live) as show:

        def update(now: CampaignProgress[T]) -> None:
            nonlocal away
            if away != (now.away is not None):
                away = now.away is not None
                render.presence(now.away)
            first = not known and bool(now.tasks)
            for status in now.changed:
                before, known[status.task.id] = known.get(status.task.id), status.state
                ended = status.state.done or status.state is TaskState.WAITING
                # What a task was before the run began is no news.
                settled = first and status.state is TaskState.SUCCEEDED
                if ended and before is not status.state and not settled:
                    words = f"{status.task.title}: {view.line(status)}"
                    render.note(f"[{now.done}/{len(now.tasks)}] {words}")
            if now.tasks:
                show(f"{view.noun} done", now.done, len(now.tasks), view.remark(now))

        yield (lambda now: None) if render.is_quiet() else update


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{round(seconds)} s"
