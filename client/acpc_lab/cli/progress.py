"""Shows a running campaign: live in place on a terminal, or as lines in a log."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from acpc_lab.campaigns import CampaignProgress, OnUpdate, T, TaskState, TaskStatus
from acpc_lab.cli import render, table
from acpc_lab.cli.table import Column

_LINE_S = 60.0
_MAX_MOVING = 12
_MAX_ENDED = 6


_quiet = ContextVar("quiet", default=False)


def be_quiet(wanted: bool) -> bool:
    """Shows no progress in this command, or shows it."""
    _quiet.set(wanted)
    return wanted


@dataclass(frozen=True)
class ProgressView(Generic[T]):
    """How the progress of one kind of tasks is drawn.

    Attributes:
        noun: What a task is called, in the plural.
        before: What goes on before there are tasks.
        columns: Of the live table, whose rows are statuses of tasks.
        answer: The answer of a task in one line; empty: it has none.
    """

    noun: str
    before: str
    columns: Sequence[Column]
    answer: Callable[[TaskStatus[T]], str] = lambda status: ""

    def headline(self, now: CampaignProgress[T]) -> str:
        """The campaign in one line."""
        if not now.tasks:
            return self.before
        counts = ", ".join(f"{count} {state.value}" for state, count in now.counts.items())
        rate = f"; {now.rate * 60:.3g} {self.noun} a minute" if now.rate else ""
        left = f"; about {_duration(now.seconds_left)} left" if now.seconds_left else ""
        return f"{now.done}/{len(now.tasks)} {self.noun} done: {counts}{rate}{left}"


@contextmanager
def shown(view: ProgressView[T], *, live: bool) -> Iterator[OnUpdate[T]]:
    """A listener that draws a campaign on stderr: in place on a terminal, otherwise in lines."""
    console = render.console()
    if _quiet.get():
        yield lambda now: None
        return
    if not (live and console.is_terminal):
        yield _Lines(view)
        return
    drawn = _InPlace(view, console.width)
    # What is printed meanwhile goes above it, but only where both go to the terminal.
    above = sys.stdout.isatty()
    with Live(drawn, console=console, refresh_per_second=4, transient=True, redirect_stdout=above):
        yield drawn.update


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


def state_of(status: TaskStatus[T]) -> str:
    """The state of a task for a cell of a table."""
    state, progress = status.state, status.progress
    if state.in_flight and progress is not None and progress.total:
        return f"{state.value} {progress.completed}/{progress.total}"
    if state in (TaskState.WAITING, TaskState.FAILED) and status.problem is not None:
        return f"{state.value} ({status.problem.code})"
    return state.value


class _Due:
    """Whether another line is due in a log: the first at once, then one a minute."""

    def __init__(self) -> None:
        self._next = -math.inf

    def __call__(self) -> bool:
        if _quiet.get() or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _LINE_S
        return True


class _Lines(Generic[T]):
    """A line for each task that ends or waits for its server, and one a minute for the others."""

    def __init__(self, view: ProgressView[T]) -> None:
        self._view = view
        self._due = _Due()
        self._known: dict[str, TaskState] = {}
        self._away = False

    def __call__(self, now: CampaignProgress[T]) -> None:
        if self._away != (now.away is not None):
            self._away = now.away is not None
            render.presence(now.away)
        first = not self._known and bool(now.tasks)
        for status in now.changed:
            before = self._known.get(status.task.id)
            self._known[status.task.id] = status.state
            ended = status.state.done or status.state is TaskState.WAITING
            # What a task was before the run began is no news.
            settled = first and status.state is TaskState.SUCCEEDED
            if ended and before is not status.state and not settled:
                words = self._line(status)
                render.note(f"[{now.done}/{len(now.tasks)}] {status.task.title}: {words}")
        if now.tasks and self._due():
            render.note(self._view.headline(now))

    def _line(self, status: TaskStatus[T]) -> str:
        answer = self._view.answer(status)
        if answer:
            return answer
        problem = None if status.state.in_flight else status.problem
        why = f" ({problem.code}: {problem.message})" if problem else ""
        return f"{status.state.value}{why}"


class _InPlace(Generic[T]):
    """The tasks that move and the last ones that ended, drawn in place."""

    def __init__(self, view: ProgressView[T], width: int) -> None:
        self._view = view
        self._width = width
        self._now: CampaignProgress[T] | None = None
        self._ended: deque[TaskStatus[T]] = deque(maxlen=_MAX_ENDED)

    def update(self, now: CampaignProgress[T]) -> None:
        if self._now is not None:  # what had ended before this run is no news
            self._ended.extend(item for item in now.changed if item.state.done)
        if now.tasks or self._now is None:
            self._now = now

    def __rich__(self) -> RenderableType:
        now = self._now
        if now is None:
            return Text(self._view.before)
        parts: list[RenderableType] = [Text(self._view.headline(now))]
        if now.tasks:
            parts.append(ProgressBar(len(now.tasks), sum(item.share for item in now.tasks)))
        if now.away is not None:
            parts.append(Text(now.away.message, style="yellow"))
        moving = [s for s in now.tasks if s.state.in_flight or s.state is TaskState.WAITING]
        shown = [*self._ended, *moving[:_MAX_MOVING]]
        if shown:
            parts.append(table.drawn(self._view.columns, shown, self._width)[0])
        if len(moving) > _MAX_MOVING:
            parts.append(Text(f"and {len(moving) - _MAX_MOVING} more at the server"))
        return Group(*parts)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{round(seconds)} s"
