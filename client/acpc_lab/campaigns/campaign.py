"""Runs tasks: submits them, looks at their jobs, and keeps what comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from acpc_client import AcpcClient, JobState, Operation, Progress, errors
from acpc_client.errors import AcpcError, RunEnded

from acpc_lab.campaigns.journal import Entry, Journal, TaskState, counted

_LOOKS = 12  # at jobs, in a turn
_MIN_BACKOFF_S, _MAX_BACKOFF_S = 1.0, 60.0
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


def check_options(call: str, given: Iterable[str], known: type) -> None:
    """Raises TypeError, which lists the options there are, when ``call`` is given another one."""
    options = known.__annotations__
    if unknown := [name for name in given if name not in options]:
        raise TypeError(f"{call} takes no {', '.join(unknown)}; known: {', '.join(options)}")


class Link:
    """Sends calls that outlast an absence of their server, within the bounds of a run.

    Args:
        client: Decides by its patience how long.
        patience: Seconds that the server may be away at a stretch; None: the client's.
        timeout: Seconds for the whole run; None: no bound.
        stop: Ends every wait when set.
        on_away: Called with the reason why the server is away, and with None once it is back.
    """

    def __init__(
        self,
        client: AcpcClient,
        *,
        patience: float | None = None,
        timeout: float | None = None,
        stop: threading.Event | None = None,
        on_away: Callable[[AcpcError | None], object] = lambda _: None,
    ) -> None:
        self.on_away = on_away
        self._absence = client.absence(patience, lambda away: self.on_away(away))  # noqa: PLW0108
        self._timeout, self._begun = timeout, time.monotonic()
        self._stop = stop or threading.Event()

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
        self._stop.wait(min(seconds, max(0.0, self._left())))

    def check(self) -> None:
        """Raises ``RunEnded`` once the time is over, or somebody asked to stop."""
        if self._stop.is_set():
            raise Stopped("the run was asked to stop; jobs that the server has go on")
        if self._left() <= 0:
            raise OutOfTime(
                f"the run was not done after {self._timeout:g} s; jobs that the server has go "
                "on, and the next run goes on from here"
            )

    def _left(self) -> float:
        end = float("inf") if self._timeout is None else self._begun + self._timeout
        return end - time.monotonic()


class Task(Protocol):
    """A job to run on a server: a sweep's cell, a study's checkpoint, an epoch's shift.

    ``id`` names it in the journal, ``title`` for people; ``kept``: its answer is at hand, so that
    no server need be asked for it.
    """

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def kept(self) -> bool: ...  # noqa: D102

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits an attempt, from 1, without patience; the same one always finds the same job."""

    def keep(self, operation: Operation) -> None:
        """Keeps the answer of a job that has ended; raises AcpcError, with which it ended."""


T = TypeVar("T", bound=Task)


@dataclass(frozen=True, kw_only=True)
class TaskStatus(Entry, Generic[T]):
    """One task at one moment.

    Attributes:
        progress: How far its job is; None: not known.
        problem: Why it failed, or why it waits.
        failures: How often its jobs, and looks at them, have failed in this run.
        not_before: When its next attempt may begin, by the monotonic clock.
    """

    task: T
    progress: Progress | None = None
    problem: AcpcError | None = None
    failures: int = 0
    not_before: float = 0.0

    @property
    def share(self) -> float:
        """Share of the work that is done, from 0 to 1."""
        if self.progress is None or not self.progress.total or self.state.done:
            return float(self.state.done)
        return min(1.0, self.progress.completed / self.progress.total)


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
    rate: float | None = None
    seconds_left: float | None = None
    away: AcpcError | None = None

    @property
    def counts(self) -> dict[TaskState, int]:
        """Tasks by state; states without a task are left out."""
        return counted(self.tasks)

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
        follow: Wait for what has one; without both, look once at each job.
        poll: Seconds between two turns.
    """

    concurrency: int | None = None
    retries: int = 0
    submit: bool = True
    follow: bool = True
    poll: float = 0.5


class Campaign(Generic[T]):
    """One run over tasks, whose states go to a journal where there is one.

    Attributes:
        statuses: Every task as it is now.
    """

    def __init__(
        self,
        client: AcpcClient,
        link: Link,
        tasks: Iterable[T],
        options: Options,
        journal: Journal | None = None,
        on_update: OnUpdate[T] = lambda _: None,
    ) -> None:
        self._client, self._link, self._options = client, link, options
        self._journal, self._on_update = journal, on_update
        self._entries = {} if journal is None else journal.entries()
        self._away: AcpcError | None = None
        self._busy_until, self._next_look = 0.0, 0
        self.statuses = [self._resumed(task) for task in tasks]
        self._begun = time.monotonic(), sum(status.share for status in self.statuses)
        link.on_away = self._set_away

    def run(self) -> None:
        """Runs until every task is done, or as far as the options go.

        Raises RunEnded: The server stayed away, the time is over, or somebody asked to stop.
        """
        self._tell(*self.statuses)
        while self.turn():
            self._link.sleep(self._options.poll)
            self._link.check()

    def turn(self) -> bool:
        """Submits, and looks at some jobs; returns whether anything is left to do.

        Raises RunEnded: As for ``run``.
        """
        how = self._options
        if how.submit:
            self._submit()
        flying = self._in_flight()
        if how.follow:
            first = self._next_look % max(1, len(flying))
            self._next_look = first + _LOOKS
            flying = (flying[first:] + flying[:first])[:_LOOKS]
        if how.follow or not how.submit:
            for index in flying:
                self._look(index)
        left = {status.state.in_flight for status in self.statuses if not status.state.done}
        return (how.submit and False in left) or (how.follow and True in left)

    def add(self, tasks: Iterable[T]) -> None:
        """Takes more tasks into the run, behind those it has."""
        new = [self._resumed(task) for task in tasks]
        self.statuses += new
        self._tell(*new)

    def _resumed(self, task: T) -> TaskStatus[T]:
        """From where the run goes on with a task; a failed one is given another attempt."""
        entry = self._entries.get(task.id, Entry())
        if entry.state is TaskState.SUCCEEDED and not task.kept:
            entry = entry.without_answer()  # which the server may still have
        elif entry.state in ENDED_BADLY and self._options.submit:
            entry = replace(entry, state=TaskState.PENDING)
        return TaskStatus(task=task, **vars(entry))

    def _in_flight(self) -> list[int]:
        return [index for index, status in enumerate(self.statuses) if status.state.in_flight]

    def _submit(self) -> None:
        flying, limit = len(self._in_flight()), self._options.concurrency
        for index, status in enumerate(self.statuses):
            now = time.monotonic()
            if self._busy_until > now or (limit is not None and flying >= limit):
                return
            unsent = status.state in (TaskState.PENDING, TaskState.WAITING)
            if unsent and status.not_before <= now:
                self._send(index)
                flying += self.statuses[index].state.in_flight

    def _send(self, index: int) -> None:
        task, attempt = self.statuses[index].task, self.statuses[index].attempt + 1
        try:
            operation = self._link.ask(lambda: task.submit(self._client, attempt), raise_busy=True)
        except RunEnded:
            raise
        except AcpcError as error:
            if isinstance(error, errors.ResourceExhausted) and error.retry_after is not None:
                self._busy_until = time.monotonic() + error.retry_after
                self._set(index, state=TaskState.WAITING, problem=error)
            else:
                self._fail(index, TaskState.FAILED, error, isinstance(error, _WORTH_ANOTHER_JOB))
        else:
            sent = Entry(TaskState.QUEUED, attempt, operation.name)
            self._set(index, **vars(sent), problem=None)
            self._take(index, operation)

    def _look(self, index: int) -> None:
        status = self.statuses[index]
        try:
            operation = self._link.ask(lambda: self._client.operations.get(status.operation))
        except errors.NotFound:  # it is submitted again under the same id
            unsent = Entry(TaskState.PENDING, status.attempt - 1)
            self._set(index, **vars(unsent), progress=None)
        except RunEnded:
            raise
        except AcpcError as error:  # its job may well go on: there is no other one yet
            failures = status.failures + 1
            ended = _ended(TaskState.FAILED, error) if failures > self._options.retries else {}
            self._set(index, **ended, problem=error, failures=failures)
        else:
            self._take(index, operation)

    def _take(self, index: int, operation: Operation) -> None:
        status = self.statuses[index]
        if not operation.done:
            running = operation.state is JobState.RUNNING
            state = TaskState.RUNNING if running else TaskState.QUEUED
            self._set(index, state=state, progress=operation.progress)
            return
        try:
            status.task.keep(operation)
        except AcpcError as error:
            cancelled = operation.state is JobState.CANCELLED
            again = errors.passing(error) or isinstance(error, _WORTH_ANOTHER_JOB)
            again = again and self._options.submit and not status.cancel_asked
            self._fail(index, TaskState.CANCELLED if cancelled else TaskState.FAILED, error, again)
        else:
            self._set(index, **_ended(TaskState.SUCCEEDED), problem=None)

    def _fail(self, index: int, state: TaskState, error: AcpcError, again: bool) -> None:
        """Takes an error of a job or of its submission; waits for another attempt, or gives up."""
        failures, not_before = self.statuses[index].failures + again, 0.0
        if again and failures <= self._options.retries:
            backoff = min(_MAX_BACKOFF_S, _MIN_BACKOFF_S * 2.0 ** (failures - 1))
            not_before = time.monotonic() + max(backoff, error.retry_after or 0.0)
        state = TaskState.WAITING if not_before else TaskState.FAILED if again else state
        changes = {"problem": error, "failures": failures, "not_before": not_before}
        self._set(index, **_ended(state, error), **changes)

    def _set(self, index: int, **changes: Any) -> None:  # noqa: ANN401
        """Changes a status, tells it, and keeps what is new in the journal."""
        before = self.statuses[index]
        now = self.statuses[index] = replace(before, **changes)
        if now.to_plain() != before.to_plain() and self._journal is not None:
            self._journal.note(now.task.id, now)
        if now != before:
            self._tell(now)

    def _set_away(self, error: AcpcError | None) -> None:
        self._away = error
        self._tell()

    def _tell(self, *changed: TaskStatus[T]) -> None:
        tasks, (begun, at_first) = tuple(self.statuses), self._begun
        elapsed, done = time.monotonic() - begun, sum(status.share for status in tasks)
        rate = (done - at_first) / elapsed if done > at_first and elapsed > 0 else None
        left = rate and max(0.0, len(tasks) - done) / rate
        self._on_update(CampaignProgress(tasks, changed, rate, left, self._away))


def _ended(state: TaskState, error: AcpcError | None = None) -> dict[str, Any]:
    code, message = ("", "") if error is None else (error.code, error.message)
    return {"state": state, "code": code, "message": message}
