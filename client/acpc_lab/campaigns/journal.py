"""Keeps the state of each task in a file: one line per event, flushed to the disk.

A crash costs nothing: request ids follow from task and attempt, so a lost event is found at the
server. Its record alone does not do: it lacks refused attempts, forgets jobs, and may be away.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from acpc.contract import from_plain, to_plain
from acpc_client.errors import AcpcError, ArgumentError, FailedPrecondition


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

    def to_plain(self) -> dict[str, Any]:
        """Returns what a journal holds of it, without what is empty."""
        plain = {item.name: to_plain(getattr(self, item.name)) for item in fields(Entry)}
        return {name: value for name, value in plain.items() if value}


def counted(entries: Iterable[Entry]) -> dict[TaskState, int]:
    """Counts tasks by state; states without one are left out."""
    counts = Counter(entry.state for entry in entries)
    return {state: counts[state] for state in TaskState if counts[state]}


_MOVED = "moved"  # the event that holds an entry


class Journal:
    """Events of a campaign in a folder, read by any process, written by one at a time.

    Attributes:
        path: The file with the events.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "journal.jsonl"
        self._file: IO[bytes] | None = None

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
                self._file = held.enter_context(self.path.open("ab"))
                self._file.truncate(len(self._whole()))  # a crash may have torn the last line
            except BlockingIOError as error:
                raise FailedPrecondition(
                    f"another process runs the sweep in {self.folder}; wait for it, or stop it",
                    reason="SWEEP_RUNNING",
                ) from error
            except OSError as error:
                raise FailedPrecondition(f"cannot write {self.folder}: {error.strerror}") from error
            try:
                yield
            finally:
                self._file = None

    def note(self, task: str, entry: Entry) -> None:
        """Writes the state of a task; it is on the disk when this returns."""
        self.append(_MOVED, task, **entry.to_plain())

    def append(self, event: str, task: str, **details: Any) -> None:  # noqa: ANN401 - plain values
        """Writes any other event; it is on the disk when this returns."""
        if self._file is None:
            raise FailedPrecondition(f"{self.folder} is not open for writing")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, "cell": task, **details})
        self._file.write(f"{line}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def entries(self) -> dict[str, Entry]:
        """Returns the last state of every task, by its id."""
        return {event["cell"]: event["entry"] for event in self.events() if "entry" in event}

    def events(self) -> Iterator[dict[str, Any]]:
        """Yields the events in order, without a last line that a crash has torn.

        Raises FailedPrecondition: A line that is no event.
        """
        for number, line in enumerate(self._whole().splitlines(), start=1):
            try:
                event = json.loads(line)
                if event["event"] == _MOVED:
                    names = ("state", *(name for name in vars(Entry()) if name in event))
                    event["entry"] = from_plain(Entry, {name: event[name] for name in names})
                hash(event["cell"])
            except (ValueError, KeyError, TypeError, RecursionError, ArgumentError) as error:
                raise FailedPrecondition(
                    f"line {number} of {self.path} is no event of a sweep; "
                    "restore the file, or delete its folder to start over"
                ) from error
            yield event

    def _whole(self) -> bytes:
        """Reads the lines that are complete."""
        content = self.path.read_bytes() if self.path.exists() else b""
        return content[: content.rfind(b"\n") + 1]
