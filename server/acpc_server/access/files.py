"""Reads the files that say who may call: rejects exposed secrets, reads changed ones again."""

import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from acpc_server.errors import FailedPrecondition

log = structlog.get_logger("acpc.access")
Value = TypeVar("Value")
POLL_SECONDS = 2.0


def read_secret(path: Path) -> bytes:
    """Read a file that holds a secret; FailedPrecondition if others than its owner can.

    A group may read the file when root owns it and this process is not root: so do Kubernetes
    (``fsGroup``) and Debian (``ssl-cert``) hand a secret to one service.
    """
    try:
        with path.open("rb") as file:
            data, status = file.read(), os.fstat(file.fileno())
    except (OSError, ValueError) as error:  # of a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise FailedPrecondition(f"cannot read {path} ({why})") from error
    group, others = status.st_mode & 0o070, status.st_mode & 0o007
    handed = status.st_uid == 0 != os.geteuid() and group == 0o040
    if others or (group and not handed):
        raise FailedPrecondition(
            f"{path} holds a secret that others can read or change (mode "
            f"{status.st_mode & 0o777:04o}); run: chmod 600 {shlex.quote(str(path))}",
            reason="FILE_EXPOSED",
        )
    return data


class Reloaded(Generic[Value]):
    """A value made from files; while they cannot be used, the value from before them stays.

    ``what`` names it in log lines; ``load`` makes it, or raises AcpcError.
    """

    def __init__(self, what: str, files: Sequence[Path], load: Callable[[], Value]) -> None:
        self._what, self._files, self._load = what, files, load
        self._seen = [_stamp(path) for path in files]
        self._value, self._next_look = load(), 0.0

    @property
    def value(self) -> Value:
        """The newest that could be used; files are looked at when it is asked for, now and then."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + POLL_SECONDS
            stamps = [_stamp(path) for path in self._files]
            if stamps != self._seen:
                self._seen = stamps
                try:
                    self._value = self._load()
                    log.info("reloaded", what=self._what)
                except Exception as error:  # noqa: BLE001 - also a bug in a reader leaves what was
                    why = getattr(error, "message", repr(error))
                    log.error("reload_failed", what=self._what, error=why)
        return self._value


def _stamp(path: Path) -> tuple[int, ...]:
    """Read what a change of the file changes: its times, its size, and a link's inode."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
