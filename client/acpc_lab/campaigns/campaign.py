"""Runs tasks: submits them, looks at their jobs, and keeps what comes back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

from acpc_client import AcpcClient, JobState, Operation
from acpc_client.errors import AcpcError, NotFound, ResourceExhausted, RunEnded

from acpc_lab.campaigns.journal import Entry, Journal, TaskState
from acpc_lab.campaigns.link import Link
from acpc_lab.campaigns.progress import CampaignProgress, Meter, OnUpdate, T, TaskStatus
from acpc_lab.campaigns.tracks import Track

# Jobs end about in the order of their submission: these are looked at in every turn,
_OLDEST = 8
# and as many of the others, in turn.
_OTHERS = 4


@dataclass(frozen=True)
class Options:
    """How tasks are run.

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


@dataclass(frozen=True)
class Records:
    """What is known of the tasks: the journal, and entries by the task's id."""

    journal: Journal | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict)


class Campaign(Generic[T]):
    """One run over tasks."""

    def __init__(
        self,
        client: AcpcClient,
        link: Link,
        tasks: Sequence[T],
        options: Options,
        records: Records | None = None,
        on_update: OnUpdate[T] = lambda _: None,
    ) -> None:
        self._records = records or Records()
        self._client = client
        self._link = link
        self._options = options
        self._on_update = on_update
        self._away: AcpcError | None = None
        self._turn = 0
        self._busy_until = 0.0
        # A turn goes through those that are not done: a watch has more and more that are.
        self._open: dict[int, Track[T]] = {}
        self._has_failed = False
        self._statuses: list[TaskStatus[T]] = []
        self._done = 0.0
        self._enlist(tasks)
        self._meter = Meter(len(tasks), self._done)
        link.on_away = self._set_away

    @property
    def statuses(self) -> tuple[TaskStatus[T], ...]:
        """Every task as it is now."""
        return tuple(self._statuses)

    def run(self) -> None:
        """Runs until every task is done, or as far as the options go.

        Raises:
            RunEnded: The server stayed away, the time is over, or somebody asked to stop.
        """
        self._tell(*self._statuses)
        while self.turn():
            self._link.sleep(self._options.poll)
            self._link.check()

    def turn(self) -> bool:
        """Submits and looks once, as far as the options go; returns whether anything is left.

        Raises:
            RunEnded: As for ``run``.
        """
        if self._options.submit:
            self._submit()
        if self._options.follow:
            self._look_at(self._due())
        return self._left()

    def add(self, tasks: Sequence[T]) -> None:
        """Takes more tasks into the run, behind those it has."""
        first = len(self._statuses)
        self._enlist(tasks)
        self._meter.expect(len(tasks))
        self._tell(*self._statuses[first:])

    def _enlist(self, tasks: Sequence[T]) -> None:
        journal, entries = self._records.journal, self._records.entries
        for task in tasks:
            entry = entries.get(task.id, Entry())
            track = Track(len(self._statuses), task, entry, journal, self._options.retries)
            track.resume(submit=self._options.submit)
            self._open[track.index] = track
            self._statuses.append(track.status)
            self._done += track.status.share
            self._settle(track)

    def _settle(self, track: Track[T]) -> None:
        """Leaves a task that is done alone from now on."""
        if track.state.done:
            del self._open[track.index]
            self._has_failed |= track.state is not TaskState.SUCCEEDED

    def look_once(self) -> None:
        """Looks once at every job in flight."""
        self._look_at(self._in_flight())

    def _in_flight(self) -> list[Track[T]]:
        return [track for track in self._open.values() if track.state.in_flight]

    def _set_away(self, error: AcpcError | None) -> None:
        self._away = error
        self._tell()

    def _left(self) -> bool:
        """Whether there is anything to wait for."""
        if self._options.stop_at_failure and self._has_failed:
            return False
        flying = {track.state.in_flight for track in self._open.values()}
        return (self._options.submit and False in flying) or (
            self._options.follow and True in flying
        )

    def _submit(self) -> None:
        in_flight = len(self._in_flight())
        limit = self._options.concurrency
        for track in tuple(self._open.values()):
            full = limit is not None and in_flight >= limit
            if full or self._busy_until > time.monotonic():
                return
            if track.ready:
                self._send(track)
                self._report(track)
                in_flight += track.state.in_flight

    def _send(self, track: Track[T]) -> None:
        attempt = track.entry.attempt + 1
        try:
            operation = self._link.ask(
                lambda: track.task.submit(self._client, attempt), raise_busy=True
            )
        except RunEnded:
            raise
        except AcpcError as error:
            if isinstance(error, ResourceExhausted) and error.retry_after is not None:
                self._busy_until = time.monotonic() + (error.retry_after or 0.0)
                track.postponed(error)
            else:
                track.rejected(error)
            return
        track.submitted(attempt, operation.name)
        self._take(track, operation)

    def _due(self) -> list[Track[T]]:
        """The jobs to look at in this turn."""
        flying = self._in_flight()
        others = flying[_OLDEST:]
        start = self._turn * _OTHERS % max(1, len(others))
        self._turn += 1
        return flying[:_OLDEST] + others[start : start + _OTHERS]

    def _look_at(self, tracks: Sequence[Track[T]]) -> None:
        for track in tracks:
            self._look(track)
            self._report(track)

    def _look(self, track: Track[T]) -> None:
        name = track.entry.operation
        try:
            operation = self._link.ask(lambda: self._client.operations.get(name))
        except NotFound:
            track.forgotten()
        except RunEnded:
            raise
        except AcpcError as error:
            track.stumbled(error)
        else:
            self._take(track, operation)

    def _take(self, track: Track[T], operation: Operation) -> None:
        """Notes where a job is."""
        if not operation.done:
            running = operation.state is JobState.RUNNING
            track.moved(TaskState.RUNNING if running else TaskState.QUEUED, operation.progress)
            return
        try:
            track.task.keep(operation)
        except AcpcError as error:
            cancelled = operation.state is JobState.CANCELLED
            state = TaskState.CANCELLED if cancelled else TaskState.FAILED
            track.ended(state, error, submit=self._options.submit)
        else:
            track.succeeded()

    def _report(self, track: Track[T]) -> None:
        status = track.status
        before = self._statuses[track.index]
        if status != before:
            self._statuses[track.index] = status
            self._done += status.share - before.share
            self._settle(track)
            self._tell(status)

    def _tell(self, *changed: TaskStatus[T]) -> None:
        measured = self._meter.read(self._done)
        self._on_update(CampaignProgress(self.statuses, changed, *measured, self._away))
