"""Reads the files that say who may call: rejects exposed ones, reads changed ones again."""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from acpc_server.errors import AcpcError, FailedPrecondition
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")
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


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    try:
        with path.open("rb") as file:
            return file.read(), os.fstat(file.fileno())
    except (OSError, ValueError) as error:  # of a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise FailedPrecondition(f"cannot read {path} ({why})") from error


def _exposed(path: Path, status: os.stat_result, what: str, mode: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{path} {what} (mode {status.st_mode & 0o777:04o}); run: "
        f"chmod {mode} {shlex.quote(str(path))}",
        reason="FILE_EXPOSED",
    )


class Reloaded(Generic[Value]):
    """A value made from files; while they cannot be used, the value from before them stays.

    ``what`` names it in log lines and metrics; ``load`` makes it, or raises AcpcError.
    """

    def __init__(
        self, what: str, files: Sequence[Path], load: Callable[[], Value], metrics: Metrics
    ) -> None:
        self._what = what
        self._files = files
        self._load = load
        self._reloads = metrics.access_reloads
        self._stale = metrics.access_stale.labels(what)
        self._seen = self._stamps()
        self.value = load()

    def refresh(self, *, force: bool) -> None:
        """Read the files again when one has changed, or when forced."""
        stamps = self._stamps()
        if stamps == self._seen and not force:
            return
        self._seen = stamps
        self._stale.set(1)  # and stays so if the files cannot be used, or their reader has a bug
        try:
            self.value = self._load()
        except AcpcError as error:
            log.error("reload_failed", what=self._what, error=error.message)
            self._reloads.labels(self._what, "failed").inc()
            return
        log.info("reloaded", what=self._what)
        self._stale.set(0)
        self._reloads.labels(self._what, "succeeded").inc()

    def _stamps(self) -> list[tuple[int, ...]]:
        return [_stamp(path) for path in self._files]


def _stamp(path: Path) -> tuple[int, ...]:
    """Read what a change of the file changes: its times, its size, and a link's inode."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
