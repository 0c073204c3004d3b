"""Writes files atomically, and locks folders that one call at a time may change."""

import contextlib
import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from acpc_server.errors import Aborted, ResourceExhausted

RETRY_SECONDS = 1.0
_PART = ".part"


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file that others see whole or not at all, power cut or not."""
    part = path.with_name(path.name + _PART)
    with volume_space():
        try:
            with part.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            part.unlink(missing_ok=True)  # half a file must not keep room from others
            raise
        part.replace(path)
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text as :func:`write_whole` does."""
    write_whole(path, lambda file: file.write(text.encode()))


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
