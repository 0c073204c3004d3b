"""Writes files atomically, locks folders that one call at a time may change, counts bytes."""

import contextlib
import errno
import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from acpc_server.errors import Aborted, ResourceExhausted
from acpc_server.observe import Metrics

RETRY_SECONDS = 1.0
_PART = ".part"


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Write a file that others see whole or not at all, power cut or not; return its size."""
    part = path.with_name(path.name + _PART)
    with volume_space():
        try:
            with part.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
        except BaseException:
            part.unlink(missing_ok=True)  # half a file must not keep room from others
            raise
        part.replace(path)
        sync_folder(path.parent)
    return size


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def volume_space() -> Iterator[None]:
    """Turn a full volume into ResourceExhausted."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise ResourceExhausted(
            "the volume of the anchor sets is full; delete sets, or have it enlarged",
            reason="ANCHOR_VOLUME_FULL",
        ) from error


@contextmanager
def held(folder: Path, busy: str) -> Iterator[None]:
    """Lock a folder, made when missing, against other calls, processes and hosts.

    The lock ends with the process, however that ends. Raises Aborted(``busy``) when another has it.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # the folder was discarded in between
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(lock, folder / "lock"):
                yield
                return
        except BlockingIOError as error:
            raise Aborted(busy, retry_after=RETRY_SECONDS) from error
        finally:
            os.close(lock)


def _is_still(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def discard(folder: Path, trash: Path) -> None:
    """Remove a folder: first its name, then its bytes."""
    trash.mkdir(parents=True, exist_ok=True)
    doomed = trash / uuid.uuid4().hex
    try:
        folder.rename(doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)


def folder_bytes(folder: Path) -> int:
    """Sum up the files below a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for inner, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(inner, name)).st_size  # noqa: PTH118  many files
    return total


# Counting reads the whole store, so it is not done at every call.
MEASURE_SECONDS = 10.0


class Count(NamedTuple):
    """Disk usage: finished sets, unfinished uploads, and the bytes of both."""

    sets: int
    staged: int
    total_bytes: int


NOTHING = Count(0, 0, 0)


class Usage:
    """The bytes of each tenant's folder, known roughly between counts, exactly at a quota."""

    def __init__(
        self, count: Callable[[], dict[Path, Count]], limit: int, metrics: Metrics
    ) -> None:
        self._count = count
        self._limit = limit
        self._metrics = metrics
        self._lock = threading.Lock()
        self._known: dict[Path, Count] = {}
        self._counted = 0.0

    def measure(self) -> None:
        """Count now."""
        found = self._count()
        with self._lock:
            self._known, self._counted = found, time.monotonic()
        self._report()

    def recent(self, folder: Path) -> Count:
        """Return a count of a tenant's folder that is some seconds old at most."""
        if time.monotonic() >= self._counted + MEASURE_SECONDS:
            self.measure()
        return self._known.get(folder, NOTHING)

    def reserve(self, folder: Path, quota: int, more: int) -> None:
        """Take bytes for a tenant's folder, or raise ResourceExhausted; the next count corrects."""
        with self._lock:
            over = self._is_over(folder, quota, more)
        if over:
            self.measure()
        with self._lock:
            known = self._known.get(folder, NOTHING)
            if over := self._is_over(folder, quota, more):
                raise over
            self._known[folder] = known._replace(total_bytes=known.total_bytes + more)
        self._report()

    def _is_over(self, folder: Path, quota: int, more: int) -> ResourceExhausted | None:
        own = self._known.get(folder, NOTHING).total_bytes
        if quota and own + more > quota:
            return ResourceExhausted(
                f"your anchor sets and unfinished uploads hold {own} bytes, and {more} more are "
                f"over your quota of {quota}; delete sets that are not needed, or have the quota "
                "raised",
                reason="ANCHOR_QUOTA",
            )
        if self._total() + more > self._limit:
            return ResourceExhausted(
                f"the anchor sets of this server are at their quota of {self._limit} bytes, {own} "
                "of them yours; delete sets that are not needed",
                reason="ANCHOR_STORE_FULL",
            )
        return None

    def _total(self) -> int:
        return sum(count.total_bytes for count in self._known.values())

    def _report(self) -> None:
        with self._lock:
            counts = list(self._known.values())
        self._metrics.anchor_sets.set(sum(count.sets for count in counts))
        self._metrics.anchor_bytes.set(sum(count.total_bytes for count in counts))
