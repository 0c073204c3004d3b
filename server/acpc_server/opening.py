"""Opens what lies below a root folder, so that no name and no link leads outside it.

What is checked of an open descriptor holds for what is read from it, whatever becomes of the name.
"""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # waits for no pipe's writer


def open_below(root: int, parts: Sequence[str], flags: int = 0) -> int:
    """Open the last of ``parts`` below the folder ``root``; return its descriptor.

    Each part is opened relative to the folder before it. Raises as :func:`open_part`.
    """
    folder = os.dup(root)
    for place, part in enumerate(parts, 1):
        try:
            inner = open_part(folder, part, flags if place == len(parts) else os.O_DIRECTORY)
        finally:
            os.close(folder)
        folder = inner
    return folder


def open_part(folder: int, part: str, flags: int = 0) -> int:
    """Open one name in an open folder, following no link; return its descriptor.

    Raises OSError, whose ``filename`` is the part: that of the system, ELOOP for any link.
    """
    try:
        return os.open(part, _FILE | flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENOTDIR and _is_link(folder, part):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from error
        raise


def path_of(descriptor: int) -> Path:
    """Return a path at which a library opens what a descriptor holds, as long as it is open."""
    return Path(f"/dev/fd/{descriptor}")


def has_data(descriptor: int, size: int, share: float) -> bool:
    """Tell whether at least this share of a file's ``size`` bytes is on disk, and no hole.

    A file system that knows of no holes has all of it. Leaves the place to read from at the start.
    """
    found = place = 0
    try:
        while found < share * size:
            start = os.lseek(descriptor, place, os.SEEK_DATA)
            place = os.lseek(descriptor, start, os.SEEK_HOLE)
            found += place - start
    except OSError as error:
        return error.errno != errno.ENXIO  # there are only holes behind
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def _is_link(folder: int, part: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:  # gone meanwhile
        return False
