"""Runs tasks: submits them, looks at their jobs, and keeps what comes back."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Generic, TypeVar

from acpc_client import AcpcClient, JobState, Operation, Progress, errors
from acpc_client.errors import AcpcError, RunEnded

from acpc_lab.campaigns.states import Entry, TaskState, counted

_LOOKS = 12  # at jobs, in a turn
# Seconds between two looks at a server; other waits of a run are multiples of it.
POLL_S = 0.5
_MAX_BACKOFF_S = 60.0
# Ends of a job that another job may not meet; CANCELLED when this campaign did not ask for it.
_WORTH_ANOTHER_JOB = (
    errors.Aborted, errors.Cancelled, errors.DataLoss, errors.Internal, errors.Unknown
)  # fmt: skip
ENDED_BADLY = (TaskState.FAILED, TaskState.CANCELLED)
Answer = TypeVar("Answer")


class OutOfTime(RunEnded, errors.DeadlineExceeded):
    """The time for the run is over."""


class Stopped(RunEnded, errors.Cancelled):
    """Somebody asked the run to stop."""


@dataclass(eq=False)
class Link:
    """Sends calls that outlast an absence of their server, within the bounds of a run.

    Attributes:
        client: Decides by its patience how long.
        patience: Seconds that the server may be away at a stretch; None: the client's.
        timeout: Seconds for the whole run; None: no bound.
        stop: Ends every wait when set.
        on_away: Called with the reason why the server is away, and with None once it is back.
        poll: Seconds between two looks at the server.
    """

    client: AcpcClient
    _: KW_ONLY
    patience: float | None = None
    timeout: float | None = None
    stop: threading.Event | None = None
    on_away: Callable[[AcpcError | None], object] = lambda _: None
    poll: float = POLL_S

    def __post_init__(self) -> None:
        self._absence = self.client.absence(self.patience, self._tell)
        self._begun, self._stopped = time.monotonic(), self.stop or threading.Event()

    def _tell(self, away: AcpcError | None) -> None:
        self.on_away(away)  # a campaign's own, later

    def ask(self, call: Callable[[], Answer], *, raise_busy: bool = False) -> Answer:
        """Returns what ``call`` does, as soon as the server answers.

        ``raise_busy``: raise ResourceExhausted at once. Raises RunEnded: As ``check``, or the
        server was away for too long; AcpcError: The server rejected the call.
        """
        while True:
            self.check()
            try:
                answer = call()
            except AcpcError as error:
                if raise_busy and isinstance(error, errors.ResourceExhausted):
                    raise
                self.sleep(self._absence.failed(error))
            else:
                self._absence.answered()
                return answer

    def sleep(self, seconds: float) -> None:
        """Waits, but not past the end of the run."""
        self._stopped.wait(min(seconds, max(0.0, self._left())))

    def check(self) -> None:
        """Raises ``RunEnded`` once the time is over, or somebody asked to stop."""
        if self._stopped.is_set():
            raise Stopped("the run was asked to stop; jobs that the server has go on")
        if self._left() <= 0:
            raise OutOfTime(
                f"the run was not done after {self.timeout:g} s; jobs that the server has go "
                "on, and the next run goes on from here"
            )

    def _left(self) -> float:
        end = float("inf") if self.timeout is None else self._begun + self.timeout
        return end - time.monotonic()


class Task(ABC):
    """A job to run on a server, and how far it is: a sweep's cell, a study's checkpoint, an epoch.

    Attributes:
        id: Names it among the entries.
        title: Names it for people.
        entry: What is kept of it.
        progress: How far its job is; None: not known.
        problem: Why it failed, or why it waits.
        failures: How often its jobs, and looks at them, have failed in this run.
        not_before: When its next attempt may begin, by the monotonic clock.
    """

    entry = Entry()
    progress: Progress | None = None
    problem: AcpcError | None = None
    failures = 0
    not_before = 0.0

    def __init__(self, id: str, title: str) -> None:
        self.id, self.title = id, title

    @property
    def kept(self) -> bool:
        """Whether its answer is at hand, so that no server need be asked for it."""
        return False

    @abstractmethod
    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits an attempt, from 1, without patience; the same one always finds the same job."""

    @abstractmethod
    def keep(self, operation: Operation) -> None:
        """Keeps the answer of a job that has ended; raises AcpcError, with which it ended."""

    @property
    def state(self) -> TaskState:
        """Its state."""
        return self.entry.state

    @property
    def share(self) -> float:
        """Share of the work that is done, from 0 to 1."""
        if self.progress is None or not self.progress.total or self.state.done:
            return float(self.state.done)
        return min(1.0, self.progress.completed / self.progress.total)


T = TypeVar("T", bound=Task)


@dataclass(frozen=True)
class CampaignProgress(Generic[T]):
    """A campaign at one moment; its tasks go on changing after the call that it is given to.

    Attributes:
        changed: Those that have changed since the last report.
        rate: Tasks done per second in this run, parts of tasks included; None: not known yet.
        seconds_left: Estimate; None: not known.
        away: Why the server does not answer; None: it does.
    """

    tasks: tuple[T, ...] = ()
    changed: tuple[T, ...] = ()
    rate: float | None = None
    seconds_left: float | None = None
    away: AcpcError | None = None

    @property
    def counts(self) -> dict[TaskState, int]:
        """Tasks by state; states without a task are left out."""
        return counted(task.entry for task in self.tasks)

    @property
    def done(self) -> int:
        """Number of tasks that are done."""
        return sum(task.state.done for task in self.tasks)


OnUpdate = Callable[[CampaignProgress[T]], None]


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes:
        concurrency: Jobs in flight at most; None: no bound.
        retries: Further attempts for a task in this run.
        submit: Submit what has no job.
        follow: Wait for what has one; without both, look once at each job.
    """

    concurrency: int | None = None
    retries: int = 0
    submit: bool = True
    follow: bool = True


@dataclass(eq=False)
class Campaign(Generic[T]):
    """One run over tasks.

    Attributes:
        client: The server.
        tasks: Every task as it is now.
        entries: What is kept of these by their id, and of what an earlier run had besides.
        keep: Called once a turn, where any entry has moved, with all of them.
    """

    client: AcpcClient
    link: Link
    tasks: Sequence[T]
    options: Options
    on_update: OnUpdate[T] = lambda _: None
    entries: dict[str, Entry] = field(default_factory=dict)
    keep: Callable[[Mapping[str, Entry]], object] = lambda _: None

    def __post_init__(self) -> None:
        self._moved = False
        self._away: AcpcError | None = None
        self._busy_until, self._next_look = 0.0, 0
        self.tasks = [self._resumed(task) for task in self.tasks]
        self._begun = time.monotonic(), sum(task.share for task in self.tasks)
        self.link.on_away = self._set_away

    def run(self) -> None:
        """Runs until every task is done, or as far as the options go.

        Raises RunEnded: The server stayed away, the time is over, or somebody asked to stop;
        OSError: What is kept cannot be written.
        """
        self._tell(*self.tasks)
        try:
            while self.turn():
                self.write()
                self.link.sleep(self.link.poll)
                self.link.check()
        finally:
            self.write()

    def write(self) -> None:
        """Hands on what is to be kept, where any of it has moved."""
        if self._moved:
            self.keep(self.entries)
            self._moved = False

    def turn(self) -> bool:
        """Submits, and looks at some jobs; returns whether anything is left to do.

        What has moved is not kept before ``write``. Raises RunEnded: As for ``run``.
        """
        how = self.options
        if how.submit:
            self._submit()
        flying = self._in_flight()
        if how.follow:
            first = self._next_look % max(1, len(flying))
            self._next_look = first + _LOOKS
            flying = (flying[first:] + flying[:first])[:_LOOKS]
        if how.follow or not how.submit:
            for task in flying:
                self._look(task)
        left = {task.state.in_flight for task in self.tasks if not task.state.done}
        return (how.submit and False in left) or (how.follow and True in left)

    def add(self, tasks: Iterable[T]) -> None:
        """Takes more tasks into the run, behind those it has."""
        new = [self._resumed(task) for task in tasks]
        self.tasks = [*self.tasks, *new]
        self._tell(*new)

    def _resumed(self, task: T) -> T:
        """Sets from where the run goes on with a task; a failed one is given another attempt."""
        entry = self.entries.get(task.id, Entry())
        if entry.state is TaskState.SUCCEEDED and not task.kept:
            entry = entry.without_answer()  # which the server may still have
        elif entry.state in ENDED_BADLY and self.options.submit:
            entry = replace(entry, state=TaskState.PENDING)
        task.entry, task.failures, task.not_before = entry, 0, 0.0
        task.progress = task.problem = None
        return task

    def _in_flight(self) -> list[T]:
        return [task for task in self.tasks if task.state.in_flight]

    def _submit(self) -> None:
        flying, limit = len(self._in_flight()), self.options.concurrency
        for task in self.tasks:
            now = time.monotonic()
            if self._busy_until > now or (limit is not None and flying >= limit):
                return
            unsent = task.state in (TaskState.PENDING, TaskState.WAITING)
            if unsent and task.not_before <= now:
                self._send(task)
                flying += task.state.in_flight

    def _send(self, task: T) -> None:
        attempt = task.entry.attempt + 1
        try:
            operation = self.link.ask(lambda: task.submit(self.client, attempt), raise_busy=True)
        except RunEnded:
            raise
        except AcpcError as error:
            if isinstance(error, errors.ResourceExhausted) and error.retry_after is not None:
                self._busy_until = time.monotonic() + error.retry_after
                self._set(task, replace(task.entry, state=TaskState.WAITING), problem=error)
            else:
                self._fail(task, TaskState.FAILED, error, isinstance(error, _WORTH_ANOTHER_JOB))
        else:
            self._set(task, Entry(TaskState.QUEUED, attempt, operation.name), problem=None)
            self._take(task, operation)

    def _look(self, task: T) -> None:
        try:
            operation = self.link.ask(lambda: self.client.operations.get(task.entry.operation))
        except errors.NotFound:  # it is submitted again under the same id
            self._set(task, Entry(TaskState.PENDING, task.entry.attempt - 1), progress=None)
        except RunEnded:
            raise
        except AcpcError as error:  # its job may well go on: there is no other one yet
            failures, entry = task.failures + 1, task.entry
            if failures > self.options.retries:
                entry = entry.ended(TaskState.FAILED, error)
            self._set(task, entry, problem=error, failures=failures)
        else:
            self._take(task, operation)

    def _take(self, task: T, operation: Operation) -> None:
        if not operation.done:
            running = operation.state is JobState.RUNNING
            state = TaskState.RUNNING if running else TaskState.QUEUED
            self._set(task, replace(task.entry, state=state), progress=operation.progress)
            return
        try:
            task.keep(operation)
        except AcpcError as error:
            cancelled = operation.state is JobState.CANCELLED
            again = errors.passing(error) or isinstance(error, _WORTH_ANOTHER_JOB)
            again = again and self.options.submit and not task.entry.cancel_asked
            self._fail(task, TaskState.CANCELLED if cancelled else TaskState.FAILED, error, again)
        else:
            self._set(task, task.entry.ended(TaskState.SUCCEEDED), problem=None)

    def _fail(self, task: T, state: TaskState, error: AcpcError, again: bool) -> None:
        """Takes an error of a job or of its submission; waits for another attempt, or gives up."""
        failures, not_before = task.failures + again, 0.0
        if again and failures <= self.options.retries:
            backoff = min(_MAX_BACKOFF_S, self.link.poll * 2.0**failures)
            not_before = time.monotonic() + max(backoff, error.retry_after or 0.0)
        state = TaskState.WAITING if not_before else TaskState.FAILED if again else state
        changes = {"problem": error, "failures": failures, "not_before": not_before}
        self._set(task, task.entry.ended(state, error), **changes)

    def _set(self, task: T, entry: Entry, **changes: Any) -> None:  # noqa: ANN401
        """Changes a task, and tells what is new of it."""
        if moved := entry != task.entry:
            self.entries[task.id], self._moved = entry, True
        if moved or any(getattr(task, name) != value for name, value in changes.items()):
            task.entry = entry
            vars(task).update(changes)
            self._tell(task)

    def _set_away(self, error: AcpcError | None) -> None:
        self._away = error
        self._tell()

    def _tell(self, *changed: T) -> None:
        tasks, (begun, at_first) = tuple(self.tasks), self._begun
        elapsed, done = time.monotonic() - begun, sum(task.share for task in tasks)
        rate = (done - at_first) / elapsed if done > at_first and elapsed > 0 else None
        left = rate and max(0.0, len(tasks) - done) / rate
        self.on_update(CampaignProgress(tasks, changed, rate, left, self._away))
