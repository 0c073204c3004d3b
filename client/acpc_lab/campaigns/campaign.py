"""Runs tasks: submits them, looks at their jobs, and keeps what comes back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Generic

from acpc_client import AcpcClient, JobState, Operation
from acpc_client.errors import (
    Aborted,
    AcpcError,
    Cancelled,
    DataLoss,
    Internal,
    NotFound,
    ResourceExhausted,
    RunEnded,
    Unknown,
    passing,
)

from acpc_lab.campaigns.journal import Entry, Journal, TaskState
from acpc_lab.campaigns.link import Link
from acpc_lab.campaigns.tasks import CampaignProgress, OnUpdate, Options, T, TaskStatus, Track

# Jobs end about in the order of their submission: the oldest are looked at in every turn, and as
# many of the others, in turn.
_OLDEST, _OTHERS = 8, 4
# Ends of a job that another job may not meet; CANCELLED when this campaign did not ask for it.
_WORTH_ANOTHER_JOB = (Aborted, Cancelled, DataLoss, Internal, Unknown)


class Campaign(Generic[T]):
    """One run over tasks, whose states go to a journal where there is one."""

    def __init__(
        self,
        client: AcpcClient,
        link: Link,
        tasks: Sequence[T],
        options: Options,
        journal: Journal | None = None,
        on_update: OnUpdate[T] = lambda _: None,
    ) -> None:
        self._client = client
        self._link = link
        self._options = options
        self._journal = journal
        self._entries = {} if journal is None else journal.entries()
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
        self._begun, self._done_at_first = time.monotonic(), self._done
        link.on_away = self._set_away

    @property
    def statuses(self) -> tuple[TaskStatus[T], ...]:
        """Every task as it is now."""
        return tuple(self._statuses)

    def run(self) -> None:
        """Runs until every task is done, or as far as the options go.

        Raises RunEnded: The server stayed away, the time is over, or somebody asked to stop.
        """
        self._tell(*self._statuses)
        while self.turn():
            self._link.sleep(self._options.poll)
            self._link.check()

    def turn(self) -> bool:
        """Submits and looks once, as far as the options go; returns whether anything is left.

        Raises RunEnded: As for ``run``.
        """
        if self._options.submit:
            self._submit()
        if self._options.follow:
            flying = self._in_flight()
            others = flying[_OLDEST:]
            start = self._turn * _OTHERS % max(1, len(others))
            self._turn += 1
            self._look_at(flying[:_OLDEST] + others[start : start + _OTHERS])
        if self._options.stop_at_failure and self._has_failed:
            return False
        left = {track.state.in_flight for track in self._open.values()}
        return (self._options.submit and False in left) or (self._options.follow and True in left)

    def add(self, tasks: Sequence[T]) -> None:
        """Takes more tasks into the run, behind those it has."""
        first = len(self._statuses)
        self._enlist(tasks)
        self._tell(*self._statuses[first:])

    def look_once(self) -> None:
        """Looks once at every job in flight."""
        self._look_at(self._in_flight())

    def _enlist(self, tasks: Sequence[T]) -> None:
        for task in tasks:
            status = TaskStatus(task, self._entries.get(task.id, Entry()))
            track = Track(len(self._statuses), status, self._journal, self._options)
            track.resume()
            self._open[track.index] = track
            self._statuses.append(track.status)
            self._done += track.status.share
            self._settle(track)

    def _settle(self, track: Track[T]) -> None:
        """Leaves a task that is done alone from now on."""
        if track.state.done:
            del self._open[track.index]
            self._has_failed |= track.state is not TaskState.SUCCEEDED

    def _in_flight(self) -> list[Track[T]]:
        return [track for track in self._open.values() if track.state.in_flight]

    def _set_away(self, error: AcpcError | None) -> None:
        self._away = error
        self._tell()

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
        task, attempt = track.status.task, track.status.entry.attempt + 1
        try:
            operation = self._link.ask(lambda: task.submit(self._client, attempt), raise_busy=True)
        except RunEnded:
            raise
        except AcpcError as error:
            if isinstance(error, ResourceExhausted) and error.retry_after is not None:
                self._busy_until = time.monotonic() + error.retry_after
                track.change(TaskState.WAITING, error)
            else:
                track.failed(TaskState.FAILED, error, again=isinstance(error, _WORTH_ANOTHER_JOB))
            return
        track.move(Entry(TaskState.QUEUED, attempt, operation.name))
        self._take(track, operation)

    def _look_at(self, tracks: Sequence[Track[T]]) -> None:
        for track in tracks:
            self._look(track)
            self._report(track)

    def _look(self, track: Track[T]) -> None:
        name = track.status.operation
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
        if not operation.done:
            running = operation.state is JobState.RUNNING
            track.goes_on(TaskState.RUNNING if running else TaskState.QUEUED, operation.progress)
            return
        try:
            track.status.task.keep(operation)
        except AcpcError as error:
            cancelled = operation.state is JobState.CANCELLED
            again = self._options.submit and not track.status.entry.cancel_asked
            track.failed(
                TaskState.CANCELLED if cancelled else TaskState.FAILED,
                error,
                again=again and (passing(error) or isinstance(error, _WORTH_ANOTHER_JOB)),
            )
        else:
            track.note(TaskState.SUCCEEDED)

    def _report(self, track: Track[T]) -> None:
        status, before = track.status, self._statuses[track.index]
        if status != before:
            self._statuses[track.index] = status
            self._done += status.share - before.share
            self._settle(track)
            self._tell(status)

    def _tell(self, *changed: TaskStatus[T]) -> None:
        elapsed, gained = time.monotonic() - self._begun, self._done - self._done_at_first
        rate = gained / elapsed if gained > 0 and elapsed > 0 else None
        left = rate and max(0.0, len(self._statuses) - self._done) / rate
        self._on_update(CampaignProgress(self.statuses, changed, elapsed, rate, left, self._away))
