"""Defines tasks and their states in a running campaign."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from acpc_client import AcpcClient, Operation, Progress
from acpc_client.errors import AcpcError

from acpc_lab.campaigns.journal import Entry, Journal, TaskState

_MIN_BACKOFF_S, _MAX_BACKOFF_S = 1.0, 60.0


class Task(Protocol):
    """A job to run on a server: a sweep's cell, a study's checkpoint, an epoch's shift."""

    @property
    def id(self) -> str:
        """Names the task in the journal."""
        ...

    @property
    def title(self) -> str:
        """Names the task for people."""
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

        Raises AcpcError: The job ended with this error.
        """
        ...


T = TypeVar("T", bound=Task)


@dataclass(frozen=True)
class TaskStatus(Generic[T]):
    """One task at one moment.

    Attributes:
        progress: How far its job is; None: not known.
        problem: Why it failed, or why it waits.
    """

    task: T
    entry: Entry
    progress: Progress | None = None
    problem: AcpcError | None = None

    @property
    def state(self) -> TaskState:
        """The task's state."""
        return self.entry.state

    @property
    def operation(self) -> str:
        """The job of the last attempt; empty: there is none."""
        return self.entry.operation

    @property
    def share(self) -> float:
        """Share of the work that is done, from 0 to 1."""
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
        elapsed: Seconds since the beginning of the run.
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
        """Number of tasks that are done."""
        return sum(item.state.done for item in self.tasks)


OnUpdate = Callable[[CampaignProgress[T]], None]


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes:
        concurrency: Jobs in flight at most; None: no bound.
        retries: Further attempts for a task in this run.
        submit: Submit what has no job.
        follow: Wait for what has one.
        stop_at_failure: End the run as soon as a task has failed.
        poll: Seconds between two turns.
    """

    concurrency: int | None = None
    retries: int = 0
    submit: bool = True
    follow: bool = True
    stop_at_failure: bool = False
    poll: float = 0.5


@dataclass
class Track(Generic[T]):
    """One task of a run: its status, its failures, and what its journal records."""

    index: int
    status: TaskStatus[T]
    journal: Journal | None
    options: Options
    _failures: int = 0
    _stumbles: int = 0
    _not_before: float = 0.0

    @property
    def state(self) -> TaskState:
        """The task's state."""
        return self.status.state

    @property
    def ready(self) -> bool:
        """Whether it is to be submitted now."""
        unsent = self.state in (TaskState.PENDING, TaskState.WAITING)
        return unsent and self._not_before <= time.monotonic()

    def change(self, state: TaskState, problem: AcpcError | None = None) -> None:
        """Changes the state, in memory alone."""
        entry = dataclasses.replace(self.status.entry, state=state)
        self.status = dataclasses.replace(self.status, entry=entry, problem=problem)

    def move(self, entry: Entry, **changes: Any) -> None:  # noqa: ANN401 - fields of a status
        """Changes the entry, here and in the journal."""
        self.status = dataclasses.replace(self.status, entry=entry, **changes)
        if self.journal is not None:
            self.journal.note(self.status.task.id, entry)

    def note(self, state: TaskState, error: AcpcError | None = None) -> None:
        """Records an end, or a wait for another attempt."""
        code, message = ("", "") if error is None else (error.code, error.message)
        entry = dataclasses.replace(self.status.entry, state=state, code=code, message=message)
        self.move(entry, problem=error)

    def resume(self) -> None:
        """Decides from where a run goes on."""
        entry = self.status.entry
        if entry.state is TaskState.SUCCEEDED and not self.status.task.kept:
            # The server may still have the answer.
            self.change(TaskState.QUEUED if entry.operation else TaskState.PENDING)
        elif entry.state in (TaskState.FAILED, TaskState.CANCELLED) and self.options.submit:
            # Whoever runs a campaign again gives its failures another attempt.
            self.change(TaskState.PENDING)

    def goes_on(self, state: TaskState, progress: Progress) -> None:
        """Takes the progress of a job that has not ended."""
        self._stumbles = 0
        self.status = dataclasses.replace(self.status, progress=progress)
        if state is not self.state:
            self.move(dataclasses.replace(self.status.entry, state=state))

    def failed(self, state: TaskState, error: AcpcError, *, again: bool) -> None:
        """Takes an error of a job or of its submission; waits for another attempt, or gives up."""
        self._failures += again
        if not again or self._failures > self.options.retries:
            self.note(TaskState.FAILED if again else state, error)
            return
        backoff = min(_MAX_BACKOFF_S, _MIN_BACKOFF_S * 2.0 ** (self._failures - 1))
        self._not_before = time.monotonic() + max(backoff, error.retry_after or 0.0)
        self.note(TaskState.WAITING, error)

    def forgotten(self) -> None:
        """Takes that the server no longer has its job: it is submitted again under the same id."""
        entry = Entry(TaskState.PENDING, self.status.entry.attempt - 1)
        self.status = dataclasses.replace(self.status, entry=entry, progress=None)

    def stumbled(self, error: AcpcError) -> None:
        """Takes an error of a look at its job, which may well go on: there is no other one yet."""
        self._stumbles += 1
        self.status = dataclasses.replace(self.status, problem=error)
        if self._stumbles > self.options.retries:
            self.note(TaskState.FAILED, error)
