"""Reads the files that say who may call: rejects exposed secrets, reads changed ones again."""

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

    ``what`` names it in log lines and metrics; ``load`` makes it, or raises AcpcError.
    """

    def __init__(
        self, what: str, files: Sequence[Path], load: Callable[[], Value], metrics: Metrics
    ) -> None:
        self._what = what
        self._files = files
        self._load = load
        self._metrics = metrics
        self._seen = [_stamp(path) for path in files]
        self.value = load()
        metrics.access_stale.labels(what).set(0)

    def refresh(self, *, force: bool) -> None:
        """Read the files again when one has changed, or when forced."""
        stamps = [_stamp(path) for path in self._files]
        if stamps == self._seen and not force:
            return
        self._seen = stamps
        stale = self._metrics.access_stale.labels(self._what)
        stale.set(1)  # and stays so if the files cannot be used, or their reader has a bug
        try:
            self.value = self._load()
        except AcpcError as error:
            log.error("reload_failed", what=self._what, error=error.message)
            self._metrics.access_reloads.labels(self._what, "failed").inc()
            return
        log.info("reloaded", what=self._what)
        stale.set(0)
        self._metrics.access_reloads.labels(self._what, "succeeded").inc()


def _stamp(path: Path) -> tuple[int, ...]:
    """Read what a change of the file changes: its times, its size, and a link's inode."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
