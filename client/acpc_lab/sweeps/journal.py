"""The folder of a sweep: what was planned, what happened, what was measured.

    NAME.sweep/plan.json        every cell, written once the file was resolved
    NAME.sweep/journal.jsonl    one line per event, appended and flushed to the disk
    NAME.sweep/results/ID.npz   the score of a cell, whole or not there

A crash at any moment costs nothing: an event that is missing is found again at the server, whose
jobs carry request ids that depend on the cell alone.
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

from acpc_client import Score
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.plan import Plan
from acpc_lab.tables import load_score, save_score, write_whole


class CellState(enum.Enum):
    """Where a cell is in its life."""

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
        return self in (CellState.QUEUED, CellState.RUNNING)

    @property
    def done(self) -> bool:
        """Whether nothing more happens to it in this run."""
        return self in (CellState.SUCCEEDED, CellState.FAILED, CellState.CANCELLED)


@dataclass(frozen=True)
class Entry:
    """What the journal knows of a cell.

    Attributes:
        state: As of the last event.
        attempt: Number of the last attempt, from 1; 0: none was made.
        operation: Its job; empty: it has none.
        code: Status name of what ended it badly.
        message: What ended it badly.
        cancel_asked: Whether this sweep asked for its job to be cancelled.
    """

    state: CellState = CellState.PENDING
    attempt: int = 0
    operation: str = ""
    code: str = ""
    message: str = ""
    cancel_asked: bool = False


class Journal:
    """The folder of a sweep, opened for reading, or for writing by one process at a time.

    Args:
        folder: The folder; made by the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None

    @property
    def _events(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def _plan(self) -> Path:
        return self.folder / "plan.json"

    def result_path(self, cell: Cell) -> Path:
        """Where the score of a cell is, or will be."""
        return self.folder / "results" / f"{cell.id}.npz"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the folder for this process.

        Raises:
            FailedPrecondition: Another process holds it, or it cannot be written.
        """
        try:
            (self.folder / "results").mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("ab")
            _take(self._lock, self.folder)
            self._cut_torn_line()
            self._file = self._events.open("ab")
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

    def _release(self) -> None:
        for file in (self._file, self._lock):
            if file is not None:
                file.close()  # frees the lock, too
        self._file = self._lock = None

    def _cut_torn_line(self) -> None:
        """Cuts what a crash left of the last line."""
        with contextlib.suppress(FileNotFoundError):
            content = self._events.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self._events, whole)

    def read_plan(self) -> Plan | None:
        """The plan, or None before there is one.

        Raises:
            FailedPrecondition: The file is no plan of this release.
        """
        try:
            document = json.loads(self._plan.read_bytes())
            if document["format"] != 1:
                raise ValueError(f"its format is {document['format']}, wanted 1")
            return Plan.from_document(document)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FailedPrecondition(f"{self._plan} cannot be read: {error}") from error

    def write_plan(self, plan: Plan) -> None:
        """Puts a plan in place of the last one."""
        text = json.dumps(plan.to_document(), indent=1)
        write_whole(self._plan, f"{text}\n".encode())

    def append(self, event: str, cell: Cell, **details: Any) -> None:  # noqa: ANN401 - plain values
        """Adds an event; it is on the disk when this returns."""
        if self._file is None:
            raise FailedPrecondition(f"{self.folder} is not open for writing")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, "cell": cell.id, **details})
        self._file.write(f"{line}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def entries(self) -> dict[str, Entry]:
        """What is known of every cell that ever had an event, by the id of the cell."""
        entries: dict[str, Entry] = {}
        for event in self.events():
            entries[event["cell"]] = _after(entries.get(event["cell"], Entry()), event)
        return entries

    def events(self) -> Iterator[dict[str, Any]]:
        """The events in order; a line that a crash has torn is passed over.

        Raises:
            FailedPrecondition: A line that is no event.
        """
        try:
            content = self._events.read_bytes()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                event = json.loads(line)
                _ = event["event"], event["cell"]
            except (ValueError, KeyError, TypeError) as error:
                raise FailedPrecondition(
                    f"line {number} of {self._events} is no event of a sweep; "
                    "restore the file, or delete its folder to start over"
                ) from error
            yield event

    def save(self, cell: Cell, score: Score) -> None:
        """Keeps the score of a cell."""
        save_score(score, self.result_path(cell))

    def load(self, cell: Cell) -> Score | None:
        """The score of a cell, or None when there is none that can be read."""
        try:
            return load_score(self.result_path(cell))
        except ArgumentError:
            return None


def _after(entry: Entry, event: dict[str, Any]) -> Entry:
    """An entry after one more event."""
    match event["event"]:
        case "submitted":
            return Entry(CellState.QUEUED, event["attempt"], event["operation"])
        case "cancel":
            return replace(entry, cancel_asked=True)
        case "ended":
            return replace(
                entry,
                state=CellState(event["state"]),
                attempt=event["attempt"],
                code=event.get("code", ""),
                message=event.get("message", ""),
            )
    return entry


def _take(lock: IO[bytes], folder: Path) -> None:
    """Takes the lock of a folder; it is freed when its process ends, however that happens."""
    try:
        import fcntl  # noqa: PLC0415  not on every system
    except ImportError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FailedPrecondition(
            f"another process runs the sweep in {folder}; wait for it, or stop it",
            reason="SWEEP_RUNNING",
        ) from error
