"""Tracks one task of a run: its attempts, its failures, and what the journal records."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Generic

from acpc_client import Progress
from acpc_client.errors import Aborted, AcpcError, Cancelled, DataLoss, Internal, Unknown, passing

from acpc_lab.campaigns.journal import Entry, Journal, TaskState
from acpc_lab.campaigns.progress import T, TaskStatus

# Ends of a job that another job may not meet; CANCELLED when this campaign did not ask for it.
_WORTH_ANOTHER_JOB = (Aborted, Cancelled, DataLoss, Internal, Unknown)
_MIN_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 60.0


@dataclass
class Track(Generic[T]):
    """One task of a run."""

    index: int
    task: T
    entry: Entry
    journal: Journal | None
    retries: int
    progress: Progress | None = None
    problem: AcpcError | None = None
    _failures: int = 0
    _stumbles: int = 0
    _waiting: bool = False
    _not_before: float = 0.0

    @property
    def state(self) -> TaskState:
        """Where the task is in its life."""
        return TaskState.WAITING if self._waiting else self.entry.state

    @property
    def ready(self) -> bool:
        """Whether it is to be submitted now."""
        unsent = self.state in (TaskState.PENDING, TaskState.WAITING)
        return unsent and self._not_before <= time.monotonic()

    @property
    def status(self) -> TaskStatus[T]:
        """The task for others to see."""
        entry = self.entry
        return TaskStatus(
            self.task, self.state, entry.attempt, entry.operation, self.progress, self.problem
        )

    def resume(self, *, submit: bool) -> None:
        """Decides where a run goes on with what the journal knows."""
        state = self.entry.state
        if state is TaskState.SUCCEEDED and not self.task.kept:
            # The server may still have the answer.
            state = TaskState.QUEUED if self.entry.operation else TaskState.PENDING
        elif state in (TaskState.FAILED, TaskState.CANCELLED) and submit:
            # Whoever runs a campaign again gives its failures another attempt.
            state = TaskState.PENDING
        self._enter(state)

    def submitted(self, attempt: int, operation: str) -> None:
        """It has a job."""
        self._write("submitted", attempt=attempt, operation=operation)
        self.entry = Entry(TaskState.QUEUED, attempt, operation)
        self._waiting = False

    def moved(self, state: TaskState, progress: Progress) -> None:
        """Its job goes on."""
        self._stumbles = 0
        self.progress = progress
        if state is not self.entry.state:
            self._write("moved", state=state.value)
            self._enter(state)

    def succeeded(self) -> None:
        """Its answer is kept; that comes first, so that no event claims a file that is missing."""
        self._note(TaskState.SUCCEEDED)

    def ended(self, state: TaskState, error: AcpcError, *, submit: bool) -> None:
        """Its job ended without an answer; another one may do better."""
        another = passing(error) or isinstance(error, _WORTH_ANOTHER_JOB)
        again = another and submit and not self.entry.cancel_asked
        if again and self._failures < self.retries:
            # Whoever reads the journal meanwhile must not take it for over.
            state = TaskState.WAITING
        self._note(state, error)
        if again:
            self._try_again(error)

    def rejected(self, error: AcpcError) -> None:
        """It could not be submitted."""
        if isinstance(error, _WORTH_ANOTHER_JOB):
            self._try_again(error)
        else:
            self._note(TaskState.FAILED, error)
            self._waiting = False

    def postponed(self, error: AcpcError) -> None:
        """The server has no room for it now."""
        self._waiting, self.problem = True, error

    def forgotten(self) -> None:
        """The server no longer has its job: submit it again under the same request id."""
        self.entry = Entry(TaskState.PENDING, self.entry.attempt - 1)
        self.progress = None

    def stumbled(self, error: AcpcError) -> None:
        """Its job could not be looked at. It may well go on, so there is no other one yet."""
        self._stumbles += 1
        self.problem = error
        if self._stumbles > self.retries:
            self._note(TaskState.FAILED, error)

    def _try_again(self, error: AcpcError) -> None:
        self._failures += 1
        if self._failures > self.retries:
            self._note(TaskState.FAILED, error)
            self._waiting = False
            return
        backoff = min(_MAX_BACKOFF_S, _MIN_BACKOFF_S * 2.0 ** (self._failures - 1))
        self._not_before = time.monotonic() + max(backoff, error.retry_after or 0.0)
        self._waiting, self.problem = True, error

    def _note(self, state: TaskState, error: AcpcError | None = None) -> None:
        """Tells the journal of an end."""
        told = {} if error is None else {"code": error.code, "message": error.message}
        self._write("ended", attempt=self.entry.attempt, state=state.value, **told)
        self._enter(state)
        self.problem = error

    def _write(self, event: str, **details: str | int) -> None:
        if self.journal is not None:
            self.journal.append(event, self.task.id, **details)

    def _enter(self, state: TaskState) -> None:
        self.entry = dataclasses.replace(self.entry, state=state)
