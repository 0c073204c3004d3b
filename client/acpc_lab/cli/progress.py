"""Shows on stderr how far work is: a bar on a terminal, or lines in a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from acpc_lab.campaigns import CampaignProgress, OnUpdate, T, TaskState, TaskStatus
from acpc_lab.cli import render

_LINE_S = 60.0

_quiet = ContextVar("quiet", default=False)


def be_quiet(wanted: bool) -> bool:
    """Shows no progress in this command, or shows it."""
    _quiet.set(wanted)
    return wanted


@contextmanager
def counted(first: str, *more: ProgressColumn) -> Iterator[Callable[[str, int, int, str], None]]:
    """Shows a count on stderr: a bar on a terminal, a line a minute elsewhere.

    Yields a function of what is counted, how many are done, of how many (0: not known), a remark.
    ``first`` is shown before its first call; ``more`` are further columns of the bar.
    """
    console = render.console()
    if _quiet.get() or not console.is_terminal:
        due = _Due()

        def tell(what: str, done: int, total: int, remark: str) -> None:
            if not (due() or (total and done == total and not _quiet.get())):
                return
            counts = f"{what} {done}/{total}" if total else what
            render.note(", ".join(filter(None, (counts, remark))))

        yield tell
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    remarks = TextColumn("{task.fields[remark]}", markup=False)
    with Progress(*columns, remarks, *more, console=console, transient=True) as bar:
        task = bar.add_task(first, total=None, remark="")

        def draw(what: str, done: int, total: int, remark: str) -> None:
            bar.update(task, description=what, completed=done, total=total or None, remark=remark)

        yield draw


class _Due:
    """Whether another line is due in a log: the first at once, then one a minute."""

    def __init__(self) -> None:
        self._next = -math.inf

    def __call__(self) -> bool:
        if _quiet.get() or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _LINE_S
        return True


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

    def headline(self, now: CampaignProgress[T]) -> str:
        """The campaign in one line."""
        counts = ", ".join(f"{count} {state.value}" for state, count in now.counts.items())
        rate = f"; {now.rate * 60:.3g} {self.noun} a minute" if now.rate else ""
        left = f"; about {_duration(now.seconds_left)} left" if now.seconds_left else ""
        return f"{now.done}/{len(now.tasks)} {self.noun} done: {counts}{rate}{left}"

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
    """Shows a campaign: a line for each task that ends, below them a bar on a terminal.

    Without ``live``, or in a log, the bar is a line a minute.
    """
    console = render.console()
    if _quiet.get():
        yield lambda now: None
    elif live and console.is_terminal:
        columns = (TextColumn("{task.description}", markup=False), BarColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(view.before, total=None)

            def draw(now: CampaignProgress[T]) -> None:
                done = sum(item.share for item in now.tasks)
                bar.update(task, description=view.headline(now), completed=done)
                bar.update(task, total=len(now.tasks) or None)

            yield _Lines(view, draw, bar.console.print)
    else:
        due = _Due()

        def note(now: CampaignProgress[T]) -> None:
            if due():
                render.note(view.headline(now))

        yield _Lines(view, note, render.note)


class _Lines(Generic[T]):
    """Prints a line for each task that ends or waits for its server; ``draw`` has the others."""

    def __init__(
        self,
        view: ProgressView[T],
        draw: Callable[[CampaignProgress[T]], object],
        tell: Callable[[str], object],
    ) -> None:
        self._view = view
        self._draw = draw
        self._tell = tell
        self._known: dict[str, TaskState] = {}
        self._away = False

    def __call__(self, now: CampaignProgress[T]) -> None:
        if self._away != (now.away is not None):
            self._away = now.away is not None
            self._tell(now.away.message if now.away else "the server is back")
        first = not self._known and bool(now.tasks)
        for status in now.changed:
            before = self._known.get(status.task.id)
            self._known[status.task.id] = status.state
            ended = status.state.done or status.state is TaskState.WAITING
            # What a task was before the run began is no news.
            settled = first and status.state is TaskState.SUCCEEDED
            if ended and before is not status.state and not settled:
                words = self._view.line(status)
                self._tell(f"[{now.done}/{len(now.tasks)}] {status.task.title}: {words}")
        if now.tasks:
            self._draw(now)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{round(seconds)} s"
