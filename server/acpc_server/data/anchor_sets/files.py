"""Writes files atomically, locks folders that one call at a time may change, counts bytes."""

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
    """Writes a file that others see whole or not at all, power cut or not; returns its size."""
    part = path.with_name(path.name + _PART)
    with volume_space(), part.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    part.replace(path)
    sync_folder(path.parent)
    return size


def sync_folder(path: Path) -> None:
    """Makes renames in a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def volume_space() -> Iterator[None]:
    """Turns a full volume into ResourceExhausted."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ResourceExhausted(
            "the volume of the anchor sets is full; delete sets, or have it enlarged",
            reason="ANCHOR_VOLUME_FULL",
        ) from error


@contextmanager
def held(folder: Path, busy: str) -> Iterator[None]:
    """Locks a folder, made when missing, against other calls, processes and hosts.

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
    """Removes a folder: first its name, then its bytes."""
    trash.mkdir(parents=True, exist_ok=True)
    doomed = trash / uuid.uuid4().hex
    try:
        folder.rename(doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)


def folder_bytes(folder: Path) -> int:
    """Bytes of the files of a folder and of those below it; files that vanish count nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


# Counting reads the whole store, so it is not done at every call.
MEASURE_SECONDS = 10.0


class Count(NamedTuple):
    """What is on disk: finished sets, unfinished uploads, and the bytes of both."""

    sets: int
    staged: int
    total_bytes: int


class Usage:
    """The store's bytes, known roughly between counts and exactly where a quota is at stake."""

    def __init__(self, count: Callable[[], Count], limit: int, metrics: Metrics) -> None:
        self._count = count
        self._limit = limit
        self._metrics = metrics
        self._lock = threading.Lock()
        self._known, self._counted = Count(0, 0, 0), 0.0

    def measure(self) -> Count:
        """Counts now."""
        found = self._count()
        with self._lock:
            self._known, self._counted = found, time.monotonic()
        self._metrics.anchor_sets.set(found.sets)
        self._metrics.anchor_bytes.set(found.total_bytes)
        return found

    def recent(self) -> Count:
        """A count that is some seconds old at most."""
        if time.monotonic() < self._counted + MEASURE_SECONDS:
            return self._known
        return self.measure()

    def reserve(self, more: int) -> None:
        """Takes bytes of the quota, or raises ResourceExhausted; the next count corrects them."""
        if self._known.total_bytes + more > self._limit:
            self.measure()
        with self._lock:
            total = self._known.total_bytes + more
            if total > self._limit:
                raise ResourceExhausted(
                    f"the anchor sets of this server are at their quota of {self._limit} bytes; "
                    "delete sets that are not needed",
                    reason="ANCHOR_STORE_FULL",
                )
            self._known = self._known._replace(total_bytes=total)
        self._metrics.anchor_bytes.set(total)
