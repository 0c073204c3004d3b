"""Unix sockets: whose name may be taken, and who may open them."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from acpc_server.errors import FailedPrecondition

# How long a server that has the name may take to be heard of, seconds.
ANSWER_SECONDS = 1.0
# How long another may be about to take a name in the same folder, seconds.
LOCK_SECONDS = 5.0


@contextmanager
def claimed(path: Path, mode: int, group: str) -> Iterator[Path]:
    """Give a name to bind to, which becomes ``path`` with ``mode`` and ``group`` at the end.

    gRPC takes a name from whoever has it when it begins and when it stops, so it gets another.
    A living server keeps its name; what a dead one left is replaced. ``forget`` removes it.

    Raises FailedPrecondition: Something else has the name, or it cannot be given, or not to the
    group.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _cannot(path, f"folder {path.parent}: {error.strerror}") from error
    mask, made = None, path.with_name(f".{secrets.token_hex(4)}")
    try:
        _lock(folder, path)
        # No other thread makes files meanwhile that it would want others to open.
        mask = os.umask(0o177)
        _clear(path)
        yield made
        if group:
            shutil.chown(made, group=int(group) if group.isdecimal() else group)
        made.chmod(mode)
        made.rename(path)
    except (OSError, LookupError) as error:
        raise _cannot(path, getattr(error, "strerror", None) or str(error)) from error
    finally:
        if mask is not None:
            os.umask(mask)
        os.close(folder)


def forget(path: Path, inode: int) -> None:
    """Remove the socket of a server that is about to stop, unless another has its name by now."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _lock(folder: int, path: Path) -> None:
    """Take the folder's lock, so that of two servers that start together one goes first."""
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise _cannot(
                    path,
                    f"another process has held a lock (flock) on the folder {path.parent} for "
                    f"{LOCK_SECONDS:g} s: end it, or give the socket a folder of its own",
                ) from error
            time.sleep(LOCK_SECONDS / 100)


def _clear(path: Path) -> None:
    """Remove the socket of a server that is no more."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise _cannot(path, "there is a file of this name, which is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(ANSWER_SECONDS)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise _cannot(path, f"there is a socket that cannot be asked: {error}") from error
    raise _cannot(path, "another server listens there")


def _cannot(path: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"cannot listen on unix:{path} ({why}); choose another --listen")
