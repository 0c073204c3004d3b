"""Defines tasks, and what a running campaign reports of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from acpc_client import AcpcClient, Operation, Progress
from acpc_client.errors import AcpcError

from acpc_lab.campaigns.journal import TaskState


class Task(Protocol):
    """One job to be had from a server: a sweep's cell, a study's checkpoint, an epoch's shift."""

    @property
    def id(self) -> str:
        """Names the task in the journal."""
        ...

    @property
    def title(self) -> str:
        """What a person calls it."""
        ...

    @property
    def kept(self) -> bool:
        """Whether its answer is at hand, so that no server need be asked for it."""
        ...

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits the job of an attempt, from 1; the same attempt always finds the same job.

        Without patience of its own: the campaign waits for a server that is away.
        """
        ...

    def keep(self, operation: Operation) -> None:
        """Keeps the answer of a job that has ended.

        Raises:
            AcpcError: The job ended with this error.
        """
        ...


T = TypeVar("T", bound=Task)


@dataclass(frozen=True)
class TaskStatus(Generic[T]):
    """One task at one moment.

    Attributes:
        attempt: Number of the last attempt that has a job, from 1; 0: none.
        progress: How far its job is; None: not known.
        problem: Why it failed, or why it waits.
    """

    task: T
    state: TaskState
    attempt: int
    operation: str
    progress: Progress | None = None
    problem: AcpcError | None = None

    @property
    def share(self) -> float:
        """How much of the work is done, from 0 to 1."""
        if self.state.done:
            return 1.0
        if self.progress is None or not self.progress.total:
            return 0.0
        # In steps of 2^-20: sums and differences of such shares are exact.
        share = min(1.0, self.progress.completed / self.progress.total)
        return round(share * 2**20) / 2**20


@dataclass(frozen=True)
class CampaignProgress(Generic[T]):
    """A campaign at one moment.

    Attributes:
        changed: Those that have changed since the last report.
        rate: Tasks done per second in this run, parts of tasks included; None: not known yet.
        seconds_left: Estimate; None: not known.
        away: Why the server does not answer; None: it does.
    """

    tasks: tuple[TaskStatus[T], ...] = ()
    changed: tuple[TaskStatus[T], ...] = ()
    elapsed: float = 0.0
    rate: float | None = None
    seconds_left: float | None = None
    away: AcpcError | None = None

    @property
    def counts(self) -> dict[TaskState, int]:
        """Tasks by state; states without a task are left out."""
        counted = Counter(item.state for item in self.tasks)
        return {state: counted[state] for state in TaskState if counted[state]}

    @property
    def done(self) -> int:
        """Tasks that are done."""
        return sum(item.state.done for item in self.tasks)


OnUpdate = Callable[[CampaignProgress[T]], None]


class Meter:
    """Rate and time left of a run over ``tasks`` tasks, of which ``done`` are done at first."""

    def __init__(self, tasks: int, done: float) -> None:
        self._begun = time.monotonic()
        self._tasks = tasks
        self._first = done

    def expect(self, more: int) -> None:
        """There are ``more`` tasks than at first."""
        self._tasks += more

    def read(self, done: float) -> tuple[float, float | None, float | None]:
        """Seconds since the beginning, tasks per second, seconds left."""
        elapsed = time.monotonic() - self._begun
        gained = done - self._first
        if gained <= 0 or elapsed <= 0:
            return elapsed, None, None
        rate = gained / elapsed
        return elapsed, rate, max(0.0, self._tasks - done) / rate
