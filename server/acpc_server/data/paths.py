"""Opens files that callers name below a root folder."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from acpc.datasets import HDF5_SUFFIXES, compressed, dataset_format, recognise, unread

from acpc_server.errors import FailedPrecondition, InvalidArgument, PermissionDenied, UnknownName
from acpc_server.opening import FOLDER, open_below

# How the names of files end that are listed.
SUFFIXES = {"dataset": HDF5_SUFFIXES, "task": (".yaml", ".yml", ".json")}
MAX_DEPTH = 8
MAX_ENTRIES = 100_000
"""Files and folders that one listing looks at."""


def files_below(root: Path, field: str) -> Iterator[str]:
    """Yield regular files below ``root`` named as datasets or tasks are, following no links.

    Of datasets also the folders that are one in another format; what is in them is none.
    At most ``MAX_DEPTH`` folders deep, and of a huge tree the first ``MAX_ENTRIES`` only.
    """
    left = MAX_ENTRIES
    for path, folders, files in os.walk(root):
        relative = Path(path).relative_to(root)
        folders.sort()
        for folder in [name for name in folders if field == "dataset"]:
            below = Path(path) / folder
            if not below.is_symlink() and dataset_format(below):
                folders.remove(folder)
                yield (relative / folder).as_posix()
        if len(relative.parts) >= MAX_DEPTH:
            folders.clear()
        for file in sorted(files):
            left -= 1
            if file.endswith(SUFFIXES[field]):
                with suppress(OSError):  # gone meanwhile
                    if stat.S_ISREG((Path(path) / file).lstat().st_mode):
                        yield (relative / file).as_posix()
        left -= len(folders)
        if left < 0:
            return


@contextmanager
def open_file(root: Path, name: str, *, field: str) -> Iterator[int]:
    """Open the regular file ``name`` below ``root`` inside the ``with``; yield its descriptor.

    The root itself may be a link, for it is the operator's; nothing below it may be. Raises
    InvalidArgument: ``name`` is empty or holds a NUL or a backslash; PermissionDenied: ``name`` is
    absolute, has a ``.`` or ``..`` part, or passes a link; UnknownName: There is no such file;
    FailedPrecondition: It is not a regular file; of a dataset in another format, with reason
    DATASET_FORMAT and what to do.
    """
    descriptor = _opened(root, name, field)
    try:
        if field == "dataset":
            _check_format(root / name, name)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FailedPrecondition(f"{field} {name!r} is not a regular file")
        if field == "dataset" and (unpack := compressed(name)):
            raise FailedPrecondition(f"dataset {unpack}", reason="DATASET_FORMAT")
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(root: Path, name: str, field: str) -> int:
    if not name or "\0" in name or "\\" in name:
        raise InvalidArgument(field, f"is {name!r}; give a file path relative to the server's root")
    parts = name.split("/")
    if PurePosixPath(name).is_absolute() or any(part in ("", ".", "..") for part in parts):
        raise PermissionDenied(
            f"{field} {name!r} must be a plain relative path, without '.', '..' or empty parts"
        )
    try:
        folder = os.open(root, FOLDER)
        try:
            return open_below(folder, parts)
        finally:
            os.close(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnknownName(
            f"{field} {name!r} does not exist",
            name,
            lambda: files_below(root, field),
            f"acpc list {field}s",
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            link = f"{field} {name!r} passes the symbolic link {error.filename!r}"
            raise PermissionDenied(link) from error
        raise FailedPrecondition(f"{field} {name!r} cannot be read: {error.strerror}") from error


def _check_format(path: Path, name: str) -> None:
    """Raise FailedPrecondition for a dataset in another format, by names alone."""
    other = recognise(path)
    if other in ("", "hdf5"):
        return
    words = (
        f"{name!r} is a Lance table, and a server reads HDF5 alone; where it lies, `acpc anchors "
        f"upload {name} --task TASK` makes an anchor set of it, which requests take instead"
    )
    words = words if other == "lance" else unread(name, other)
    raise FailedPrecondition(f"dataset {words}", reason="DATASET_FORMAT")
