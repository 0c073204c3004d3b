"""Values read from files, and read again when a file changes or SIGHUP comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog

from acpc_server.errors import AcpcError
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")
POLL_SECONDS = 2.0
Value = TypeVar("Value")
# What tells that a file was changed: its times (the second one moves with its mode), size, inode (a
# mounted secret is a link that moves).
_Stamp = tuple[int, int, int, int] | None


class Reloaded(Generic[Value]):
    """A value that is made from files; a file that cannot be used leaves the old value in place.

    Args:
        what: Name in log lines and metrics.
        load: Makes the value; raises AcpcError when the files cannot be used.
        files: The files that a value was made from.
        metrics: Counts reloads.

    Raises:
        AcpcError: The first value cannot be made.
    """

    def __init__(
        self,
        what: str,
        load: Callable[[], Value],
        files: Callable[[Value], Sequence[Path]],
        metrics: Metrics,
    ) -> None:
        self._what = what
        self._load = load
        self._files = files
        self._metrics = metrics
        self.value = load()
        self._seen = self._stamps()

    def refresh(self, *, force: bool) -> None:
        """Read the files again when one has changed, or when told to."""
        stamps = self._stamps()
        if stamps.items() <= self._seen.items() and not force:
            return
        try:
            value = self._load()
        except AcpcError as error:
            log.error("reload_failed", what=self._what, error=error.message)
            self._metrics.access_reloads.labels(self._what, "failed").inc()
            self._seen = stamps
            return
        self.value = value
        # The new value may name other files; of the same ones the time before reading counts.
        self._seen = {**self._stamps(), **stamps}
        log.info("reloaded", what=self._what)
        self._metrics.access_reloads.labels(self._what, "succeeded").inc()

    def _stamps(self) -> dict[Path, _Stamp]:
        return {path: _stamp(path) for path in self._files(self.value)}


class Refreshed(Protocol):
    """Anything that can be brought up to date."""

    def refresh(self, *, force: bool) -> None:
        """Bring it up to date; ``force`` when a person asked for it."""


class Reloader:
    """A thread that looks after changed files every two seconds, and at once when poked."""

    def __init__(self) -> None:
        self._entries: list[Refreshed] = []
        self._poked = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="access-reload", daemon=True)

    def add(self, entry: Refreshed) -> None:
        """Look after one more value; before :meth:`start`."""
        self._entries.append(entry)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def poke(self) -> None:
        """Read everything again now. Safe in a signal handler."""
        self._poked.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._poked.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            poked = self._poked.wait(POLL_SECONDS)
            self._poked.clear()
            if self._stopping:
                return
            for entry in self._entries:
                try:
                    entry.refresh(force=poked)
                except Exception:  # a bug in one file's reader must not stop the others
                    log.exception("reload_bug")


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
