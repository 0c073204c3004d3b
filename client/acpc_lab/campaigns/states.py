"""How far a task is: what a campaign keeps of it, and whoever runs one writes down."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from acpc_client.errors import AcpcError


class TaskState(enum.Enum):
    """State of a task."""

    PENDING = "pending"
    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def in_flight(self) -> bool:
        """Whether the server has its job."""
        return self in (TaskState.QUEUED, TaskState.RUNNING)

    @property
    def done(self) -> bool:
        """Whether nothing more happens to it in this run."""
        return self in (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED)


@dataclass(frozen=True)
class Entry:
    """State of a task.

    Attributes:
        attempt: Number of the last attempt, from 1; 0: none was made.
        operation: The job of that attempt.
        code: Status name of the error that ended it.
        cancel_asked: Whether this campaign asked for its job to be cancelled.
    """

    state: TaskState = TaskState.PENDING
    attempt: int = 0
    operation: str = ""
    code: str = ""
    message: str = ""
    cancel_asked: bool = False

    def without_answer(self) -> Entry:
        """Returns the state of a task that has succeeded, once its answer is lost here."""
        state = TaskState.QUEUED if self.operation else TaskState.PENDING
        return replace(self, state=state)

    def ended(self, state: TaskState, error: AcpcError | None = None) -> Entry:
        """Returns it in a state in which its job has ended, with the error that it ended with."""
        code, message = ("", "") if error is None else (error.code, error.message)
        return replace(self, state=state, code=code, message=message)


def counted(entries: Iterable[Entry]) -> dict[TaskState, int]:
    """Counts tasks by state; states without one are left out."""
    counts = Counter(entry.state for entry in entries)
    return {state: counts[state] for state in TaskState if counts[state]}
