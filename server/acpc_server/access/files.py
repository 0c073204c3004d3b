"""Reads the files that say who may call: rejects exposed ones, reads changed ones again."""

import os
import queue
import shlex
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from acpc_server.errors import AcpcError, FailedPrecondition
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")
# Far above any file of keys or certificates; a large revocation list has a few MiB.
MAX_FILE_BYTES = 64 * 1024 * 1024
POLL_SECONDS = 2.0
Value = TypeVar("Value")


def read_public(path: Path) -> bytes:
    """Read a file that decides who may call; FailedPrecondition if everyone may write it."""
    data, status = _read(path)
    if status.st_mode & 0o002:
        raise _exposed(path, status, "decides who may call and can be changed by anyone", "o-w")
    return data


def read_secret(path: Path) -> bytes:
    """Read a file that holds a secret; FailedPrecondition if others than its owner can.

    A group may read the file when root owns it and this process is not root: so do Kubernetes
    (``fsGroup``) and Debian (``ssl-cert``) hand a secret to one service.
    """
    data, status = _read(path)
    group, others = status.st_mode & 0o070, status.st_mode & 0o007
    handed = status.st_uid == 0 != os.geteuid() and group == 0o040
    if others or (group and not handed):
        raise _exposed(path, status, "holds a secret that others can read or change", "600")
    return data


def _exposed(path: Path, status: os.stat_result, what: str, mode: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{path} {what} (mode {status.st_mode & 0o777:04o}); run: "
        f"chmod {mode} {shlex.quote(str(path))}",
        reason="FILE_EXPOSED",
    )


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    try:
        with open(path, "rb", opener=_at_once) as file:
            os.set_blocking(file.fileno(), True)
            status = os.fstat(file.fileno())
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # of a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise FailedPrecondition(f"cannot read {path} ({why})") from error
    if len(data) > MAX_FILE_BYTES:
        raise FailedPrecondition(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return data, status


def _at_once(path: str, flags: int) -> int:
    """Open a named pipe that nobody writes as an empty file: waiting would end all reloading."""
    return os.open(path, flags | os.O_NONBLOCK)


class Reloaded(Generic[Value]):
    """A value made from files; while they cannot be used, the value from before them stays.

    Args:
        what: Name in log lines and metrics.
        load: Makes the value; raises AcpcError when the files cannot be used.
        files: The files that a value was made from.
        metrics: Counts reloads.
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
        self._reloads = metrics.access_reloads
        self._stale = metrics.access_stale.labels(what)
        self.value = load()
        self._seen = self._stamps()

    def refresh(self, *, force: bool) -> None:
        """Read the files again when one has changed, or when forced."""
        stamps = self._stamps()
        if stamps.items() <= self._seen.items() and not force:
            return
        self._stale.set(1)  # and stays so if the files cannot be used, or their reader has a bug
        try:
            self.value = self._load()
        except AcpcError as error:
            log.error("reload_failed", what=self._what, error=error.message)
            self._reloads.labels(self._what, "failed").inc()
            self._seen = stamps
            return
        # The new value may name other files; of the same ones the time before reading counts.
        self._seen = {**self._stamps(), **stamps}
        log.info("reloaded", what=self._what)
        self._stale.set(0)
        self._reloads.labels(self._what, "succeeded").inc()

    def _stamps(self) -> dict[Path, tuple[int, ...]]:
        return {path: _stamp(path) for path in self._files(self.value)}


class Reloader:
    """A thread that looks for changed files every two seconds, and at once when poked."""

    def __init__(self) -> None:
        self.also: Callable[..., object] = lambda **_: None  # what else is looked after
        self._entries: list[Reloaded[Any]] = []
        # A handler may interrupt another's poke, so it takes no lock.
        self._pokes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="access-reload", daemon=True)

    def add(self, entry: Reloaded[Value]) -> Reloaded[Value]:
        """Watch one more value, from :meth:`start` on; returns it."""
        self._entries.append(entry)
        return entry

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def poke(self) -> None:
        """Read everything again now. Safe in a signal handler."""
        self._pokes.put(None)

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self.poke()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            poked = self._was_poked()
            if self._stopping:
                return
            for refresh in (*(entry.refresh for entry in self._entries), self.also):
                try:
                    refresh(force=poked)
                except Exception:  # a bug in one file's reader must not stop the others
                    log.exception("reload_bug")

    def _was_poked(self) -> bool:
        """Wait until it is time to look; return whether it was poked since the last look."""
        with suppress(queue.Empty):
            self._pokes.get(timeout=POLL_SECONDS)
            with suppress(queue.Empty):
                while True:
                    self._pokes.get_nowait()
            return True
        return False


def _stamp(path: Path) -> tuple[int, ...]:
    """Read what a change of the file changes: its times, its size, and a link's inode."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
