"""Files below the checkpoint root, reached so that no name or link can leave it.

Every step opens one path component relative to the directory opened before it and follows no
link, so what was checked is what is read. A file is read once; callers hash and parse those bytes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from acpc_server.errors import InvalidArgument, NotFound, PermissionDenied, UnsafeCheckpoint

CONFIG_NAME = "config.json"
PREFERRED_WEIGHTS = "weights.pt"
WEIGHTS_SUFFIXES = (".pt", ".safetensors")
OBJECT_SUFFIX = ".ckpt"
MAX_LISTING_DEPTH = 8
CONVERT_HINT = (
    "pickled modules run code when read, so the server never reads them; convert it offline with "
    "acpc_server.models.convert"
)


@dataclass(frozen=True)
class CheckpointLimits:
    """Sizes above which a checkpoint is refused before memory is taken for it.

    Attributes:
        config_bytes: Size of ``config.json`` in bytes.
        weights_bytes: Size of a weights file in bytes.
        parameters: Parameters of the network the config asks for.
    """

    config_bytes: int = 1 << 20
    weights_bytes: int = 4 << 30
    parameters: int = 1_000_000_000


DEFAULT_LIMITS = CheckpointLimits()


@dataclass(frozen=True)
class CheckpointEntry:
    """One loadable pair of folder and weights file.

    Attributes:
        name: Folder relative to the root, with ``/`` between its parts.
        weights: Name of the weights file in it.
        size_bytes: Size of the weights file.
        stamp: Identity, size and time of both files; differs once either was replaced.
    """

    name: str
    weights: str
    size_bytes: int
    stamp: tuple[int, ...]


@contextmanager
def open_folder(root: Path, name: str) -> Iterator[int]:
    """Descriptor of the folder ``name`` below ``root``.

    Raises:
        InvalidArgument: ``checkpoint.name`` is empty, absolute, or has ``.``, ``..``, empty,
            overlong or unprintable parts.
        PermissionDenied: A part is a symbolic link.
        NotFound: No such folder.
    """
    parts = name.split("/")
    for part in parts:
        _check_part("checkpoint.name", name, part)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = _open_part(descriptor, part, os.O_DIRECTORY, f"checkpoint {name!r}")
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def choose_weights(folder: int, name: str, weights: str) -> str:
    """Name of the weights file to read: ``weights``, else ``weights.pt``, else the only one.

    Raises:
        InvalidArgument: ``checkpoint.weights`` is no plain file name, has another suffix, or was
            left empty where the folder holds several weights files; the message lists them.
        UnsafeCheckpoint: A pickled module was named, or is all there is.
        NotFound: The folder holds no weights file.
    """
    if weights:
        _check_part("checkpoint.weights", weights, weights)
        if weights.endswith(OBJECT_SUFFIX):
            raise UnsafeCheckpoint(f"{weights}: {CONVERT_HINT}", reason="CHECKPOINT_PICKLED")
        if not weights.endswith(WEIGHTS_SUFFIXES):
            raise InvalidArgument(
                "checkpoint.weights",
                f"{weights!r} is no weights file; its name must end in "
                f"{' or '.join(WEIGHTS_SUFFIXES)}",
            )
        return weights
    present = sorted(os.listdir(folder))
    files = [entry for entry in present if entry.endswith(WEIGHTS_SUFFIXES)]
    if PREFERRED_WEIGHTS in files:
        return PREFERRED_WEIGHTS
    if len(files) > 1:
        raise InvalidArgument(
            "checkpoint.weights",
            f"checkpoint {name!r} has {len(files)} weights files; name one of: {', '.join(files)}",
            reason="WEIGHTS_AMBIGUOUS",
        )
    if files:
        return files[0]
    pickled = [entry for entry in present if entry.endswith(OBJECT_SUFFIX)]
    if pickled:
        raise UnsafeCheckpoint(f"{pickled[0]}: {CONVERT_HINT}", reason="CHECKPOINT_PICKLED")
    raise NotFound(
        f"checkpoint {name!r} has no weights file ({PREFERRED_WEIGHTS}, weights_epoch_N.pt or "
        "*.safetensors)"
    )


def read_file(folder: int, filename: str, limit: int) -> bytes:
    """All bytes of a regular file, read through one descriptor.

    Raises:
        NotFound: No such file.
        PermissionDenied: It is a symbolic link.
        UnsafeCheckpoint: It is a directory, pipe, socket or device, empty, above
            ``limit``, or written to meanwhile.
    """
    # Without O_NONBLOCK opening a named pipe would wait for a writer.
    descriptor = _open_part(folder, filename, os.O_NONBLOCK, filename)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeCheckpoint(f"{filename}: not a regular file")
        if status.st_size > limit:
            raise UnsafeCheckpoint(
                f"{filename}: {status.st_size} bytes, above the limit of {limit}",
                reason="CHECKPOINT_TOO_LARGE",
            )
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(status.st_size + 1)
    finally:
        os.close(descriptor)
    if len(data) != status.st_size:
        raise UnsafeCheckpoint(f"{filename}: its size changed while it was read; try again")
    if not data:
        raise UnsafeCheckpoint(f"{filename}: empty file")
    return data


def list_checkpoints(root: Path) -> list[CheckpointEntry]:
    """Every weights file beside a ``config.json`` below ``root``, by name and then by file.

    Links are not followed, files are not opened, and folders more than ``MAX_LISTING_DEPTH`` deep
    are not searched. Being listed does not mean that a checkpoint will load.
    """
    entries = []
    for path, folders, files, descriptor in os.fwalk(root, follow_symlinks=False):
        relative = Path(path).relative_to(root)
        folders.sort()
        if len(relative.parts) >= MAX_LISTING_DEPTH:
            folders.clear()
        if CONFIG_NAME not in files or not relative.parts:
            continue
        for filename in sorted(files):
            if filename.endswith(WEIGHTS_SUFFIXES):
                status = os.stat(filename, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    entries.append(_entry(descriptor, relative.as_posix(), filename))
    return sorted(entries, key=lambda entry: (entry.name, entry.weights))


def find_checkpoint(root: Path, name: str, weights: str = "") -> CheckpointEntry:
    """The pair of folder and weights file that :func:`choose_weights` picks, unread.

    Raises:
        InvalidArgument, NotFound, PermissionDenied, UnsafeCheckpoint: As :func:`open_folder` and
            :func:`choose_weights`, or a file is missing.
    """
    with open_folder(root, name) as folder:
        return _entry(folder, name, choose_weights(folder, name, weights))


def _entry(folder: int, name: str, weights: str) -> CheckpointEntry:
    stamp: list[int] = []
    for filename in (CONFIG_NAME, weights):
        try:
            status = os.stat(filename, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise NotFound(f"checkpoint {name!r} has no file {filename!r}") from None
        stamp += (status.st_ino, status.st_size, status.st_mtime_ns)
    return CheckpointEntry(name, weights, size_bytes=status.st_size, stamp=tuple(stamp))


def _check_part(field: str, whole: str, part: str) -> None:
    if not whole:
        raise InvalidArgument(field, "empty; a folder relative to the checkpoint root is wanted")
    if whole.startswith("/"):
        raise InvalidArgument(field, f"{whole!r} is absolute; give a name below the root")
    if part in {"", ".", ".."} or "/" in part:
        raise InvalidArgument(field, f"{whole!r} has a part {part!r}; only plain names are taken")
    if not part.isprintable():
        raise InvalidArgument(field, f"{whole!r} has unprintable characters")
    if len(part.encode()) > 255:
        raise InvalidArgument(field, "has a part longer than 255 bytes")


def _open_part(folder: int, part: str, flags: int, label: str) -> int:
    try:
        return os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except FileNotFoundError:
        raise NotFound(f"{label}: {part!r} does not exist") from None
    except OSError as error:
        if _is_link(folder, part):
            raise PermissionDenied(
                f"{label}: {part!r} is a symbolic link, and links are not followed; put the files "
                "below the checkpoint root"
            ) from None
        if error.errno == errno.ENOTDIR:
            raise NotFound(f"{label}: {part!r} is not a folder") from None
        raise UnsafeCheckpoint(f"{label}: {part!r} cannot be opened: {error.strerror}") from None


def _is_link(folder: int, part: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
