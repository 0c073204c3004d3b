"""Keeps the state of each task in a file, which is written whole once a turn.

A crash costs nothing: request ids follow from task and attempt, so what was not written yet is
found at the server. Its record alone does not do: it lacks refused attempts, forgets jobs, and may
be away.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acpc.contract import from_plain, to_plain
from acpc_client import write_whole
from acpc_client.errors import AcpcError, FailedPrecondition

# What reading JSON raises where a file is not as it was written.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


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


class Journal:
    """The state of each task of a campaign, in a folder: read by any process, written by one.

    Attributes:
        path: The file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "state.json"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the folder for this process; the lock is freed however the process ends.

        Raises FailedPrecondition: Another process holds it, or it cannot be written.
        """
        with contextlib.ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = held.enter_context((self.folder / "lock").open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise FailedPrecondition(
                    f"another process runs the sweep in {self.folder}; wait for it, or stop it",
                    reason="SWEEP_RUNNING",
                ) from error
            except OSError as error:
                raise FailedPrecondition(f"cannot write {self.folder}: {error.strerror}") from error
            yield

    def write(self, entries: Mapping[str, Entry]) -> None:
        """Puts the states on the disk, without what is empty; raises OSError."""
        plain = {
            task: {name: value for name, value in to_plain(entry).items() if value}
            for task, entry in entries.items()
        }
        write_whole(self.path, f"{json.dumps(plain, indent=0)}\n".encode())

    def entries(self) -> dict[str, Entry]:
        """Returns the last state of every task, by its id.

        Raises FailedPrecondition: The file holds none.
        """
        try:
            if self.path.exists():
                plain = json.loads(self.path.read_bytes())
            else:
                plain = {x["cell"]: x for x in self.before() if x["event"] == "moved"}
            return {task: from_plain(Entry, x, arrays={}) for task, x in plain.items()}
        except UNREADABLE as error:
            raise FailedPrecondition(
                f"{self.path} cannot be read as the state of a sweep; "
                "restore the file, or delete its folder to start over"
            ) from error

    def before(self) -> list[dict[str, Any]]:
        """The events that an earlier release wrote, a line each; a crash may have torn the last."""
        file = self.path.with_name("journal.jsonl")
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]
