"""What happened to the tasks of a campaign: one line per event, flushed to the disk.

A crash at any moment costs nothing: an event that is missing is found again at the server, whose
jobs carry request ids that follow from the task and the attempt alone.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from acpc_client.errors import FailedPrecondition


class TaskState(enum.Enum):
    """Where a task is in its life."""

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
    """What the journal knows of a task.

    Attributes:
        attempt: Number of the last attempt, from 1; 0: none was made.
        cancel_asked: Whether this campaign asked for its job to be cancelled.
    """

    state: TaskState = TaskState.PENDING
    attempt: int = 0
    operation: str = ""
    code: str = ""
    message: str = ""
    cancel_asked: bool = False


class Journal:
    """Events of a campaign in a folder, read by any, written by one process at a time.

    Attributes:
        path: The file with the events.
    """

    def __init__(
        self, folder: Path, what: str, events: str = "journal.jsonl", lock: str = "lock"
    ) -> None:
        self.folder = folder
        self._what = what
        self.path = folder / events
        self._lock_path = folder / lock
        self._file: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the folder for this process.

        Raises:
            FailedPrecondition: Another process holds it, or it cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock_path.open("ab")
            self._take(self._lock)
            self._cut_torn_line()
            self._file = self.path.open("ab")
        except OSError as error:
            self._release()
            raise FailedPrecondition(f"cannot write {self.folder}: {error.strerror}") from error
        except FailedPrecondition:
            self._release()
            raise
        try:
            yield
        finally:
            self._release()

    def append(self, event: str, task: str, **details: Any) -> None:  # noqa: ANN401 - plain values
        """Adds an event of a task; it is on the disk when this returns."""
        file = self._open()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, "cell": task, **details})
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())

    def clear(self) -> None:
        """Deletes every event; the journal stays open for writing."""
        self._open().truncate(0)

    def entries(self) -> dict[str, Entry]:
        """What is known of every task that ever had an event, by its id."""
        entries: dict[str, Entry] = {}
        for event in self.events():
            entries[event["cell"]] = _after(entries.get(event["cell"], Entry()), event)
        return entries

    def events(self) -> Iterator[dict[str, Any]]:
        """The events in order; a last line that a crash has torn is left out.

        Raises:
            FailedPrecondition: A line that is no event.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                event = json.loads(line)
                _ = event["event"], event["cell"]
            except (ValueError, KeyError, TypeError) as error:
                raise FailedPrecondition(
                    f"line {number} of {self.path} is no event of a {self._what}; "
                    "restore the file, or delete its folder to start over"
                ) from error
            yield event

    def remove(self) -> None:
        """Deletes the journal; the campaign is over."""
        self.path.unlink(missing_ok=True)
        self._lock_path.unlink(missing_ok=True)

    def _open(self) -> IO[bytes]:
        if self._file is None:
            raise FailedPrecondition(f"{self.folder} is not open for writing")
        return self._file

    def _release(self) -> None:
        for file in (self._file, self._lock):
            if file is not None:
                file.close()  # frees the lock, too
        self._file = self._lock = None

    def _cut_torn_line(self) -> None:
        """Cuts what a crash left of the last line."""
        with contextlib.suppress(FileNotFoundError):
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self.path, whole)

    def _take(self, lock: IO[bytes]) -> None:
        """Takes the lock; it is freed when its process ends, however that happens."""
        try:
            import fcntl  # noqa: PLC0415  not on every system
        except ImportError:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FailedPrecondition(
                f"another process runs the {self._what} in {self.folder}; wait for it, or stop it",
                reason=f"{self._what.upper()}_RUNNING",
            ) from error


def _after(entry: Entry, event: dict[str, Any]) -> Entry:
    """An entry after one more event."""
    match event["event"]:
        case "submitted":
            return Entry(TaskState.QUEUED, event["attempt"], event["operation"])
        case "moved":
            return replace(entry, state=TaskState(event["state"]))
        case "cancel":
            return replace(entry, cancel_asked=True)
        case "ended":
            return replace(
                entry,
                state=TaskState(event["state"]),
                attempt=event["attempt"],
                code=event.get("code", ""),
                message=event.get("message", ""),
            )
    return entry
