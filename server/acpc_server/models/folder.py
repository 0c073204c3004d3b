"""Opens files below the checkpoint root so that no name or link can lead outside it.

A file is read once; callers hash and parse those bytes.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from acpc.contract import WEIGHTS_SUFFIXES, is_weights_name

from acpc_server.errors import (
    AcpcError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    UnknownName,
    UnsafeCheckpoint,
    shortage,
)
from acpc_server.models.config import CONFIG_NAME, OPTIONS_NAME
from acpc_server.models.others import Hint, look_below, look_into
from acpc_server.opening import FOLDER, has_data, open_below, open_part

PREFERRED_WEIGHTS = "weights.pt"
HUB_PREFIX = "hf:"
LIGHTNING_SUFFIX = ".ckpt"
MAX_LISTING_DEPTH = 8
# Least part of a file that is on disk: weights are numbers, holes are read as zeros, and memory is
# taken for them. Copies that turn zeros into holes leave more of a checkpoint.
LEAST_DATA = 0.5
# A part of a file that was split; the only part of one is whole.
SHARD = re.compile(r"-\d{5}-of-(?!00001)\d{5}\.")


@dataclass(frozen=True)
class CheckpointLimits:
    """Sizes above which a checkpoint is rejected before memory is allocated for it."""

    config_bytes: int = 1 << 20
    weights_bytes: int = 4 << 30

    @property
    def parameters(self) -> int:
        """Largest network to make: its weights are in the file, in at least two bytes each."""
        return self.weights_bytes // 2


DEFAULT_LIMITS = CheckpointLimits()


@dataclass(frozen=True)
class CheckpointEntry:
    """One loadable pair of folder, ``/`` between its parts, and weights file.

    ``size_bytes`` is that of the weights. ``stamp`` holds identity, size and time of these files
    and of the options beside them; it differs once one was replaced.
    """

    name: str
    weights: str
    size_bytes: int
    stamp: tuple[int, ...]


@contextmanager
def open_folder(root: Path, name: str) -> Iterator[int]:
    """Open the folder ``name`` below ``root`` and yield its descriptor.

    Raises InvalidArgument: ``checkpoint.name`` is empty, absolute, or has ``.``, ``..``, empty,
    overlong or unprintable parts; PermissionDenied: A part is a symbolic link; UnknownName: No such
    folder; FailedPrecondition: ``root`` itself cannot be opened.
    """
    if name.startswith(HUB_PREFIX):
        repo = name.removeprefix(HUB_PREFIX)
        folder = repo.partition("@")[0].rpartition("/")[2]
        raise InvalidArgument(
            "checkpoint.name",
            f"{name!r:.200} lies on the Hub, where the server does not go; on its host: "
            f"acpc-server import hf:{repo:.200} CHECKPOINT_ROOT/{folder:.200}",
            reason="CHECKPOINT_ON_HUB",
        )
    parts = name.split("/")
    for part in parts:
        _check_part("checkpoint.name", name, part)
    opened = _open_root(root)
    try:
        descriptor = open_below(opened, parts, os.O_DIRECTORY)
    except OSError as raised:
        error = _explained(raised, f"checkpoint {name!r}")
        if isinstance(error, NotFound):
            error = UnknownName(
                error.message,
                name,
                lambda: [entry.name for entry in list_checkpoints(root)],
                "acpc list checkpoints",
            )
        raise error from None
    finally:
        os.close(opened)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def choose_weights(folder: int, name: str, weights: str) -> str:
    """Return the weights file to read: ``weights``, else ``weights.pt``, else the only one.

    Raises InvalidArgument: ``checkpoint.weights`` is not a plain file name, has another suffix, or
    was left empty where the folder holds several weights files; the message lists them; NotFound:
    The folder holds no weights file.
    """
    if weights:
        _check_part("checkpoint.weights", weights, weights)
        if not weights.endswith(WEIGHTS_SUFFIXES):
            raise InvalidArgument(
                "checkpoint.weights",
                f"{weights!r} is no weights file; its name must end in "
                f"{' or '.join(WEIGHTS_SUFFIXES)}",
            )
        return weights
    if _status(folder, PREFERRED_WEIGHTS):
        return PREFERRED_WEIGHTS
    present = sorted(os.listdir(folder))
    files = [entry for entry in present if entry.endswith(WEIGHTS_SUFFIXES)]
    files = [entry for entry in files if not entry.endswith(LIGHTNING_SUFFIX)] or files
    if PREFERRED_WEIGHTS in files:  # no regular file; reading it says what it is
        return PREFERRED_WEIGHTS
    shard = next((entry for entry in present if SHARD.search(entry)), "")
    if shard and all(map(SHARD.search, files)):
        raise FailedPrecondition(
            f"checkpoint {name!r} holds its weights in shards ({shard}); save all their tensors in "
            "one file, model.safetensors",
            reason="CHECKPOINT_WEIGHTS_REFUSED",
        )
    if len(files) > 1:
        raise InvalidArgument(
            "checkpoint.weights",
            f"checkpoint {name!r} has {len(files)} weights files; name one of: {', '.join(files)}",
            reason="WEIGHTS_AMBIGUOUS",
        )
    if files:
        return files[0]
    look = look_below(folder, name)
    instead = f": {look.problem}; next: {look.command}" if look and look.command else ""
    raise NotFound(
        f"checkpoint {name!r} has no weights file ({PREFERRED_WEIGHTS}, weights_epoch_N.pt, "
        f"*.safetensors or *.ckpt){instead}"
    )


def read_file(
    folder: int,
    filename: str,
    limit: int,
    check: Callable[[str, io.BufferedReader, int], None] = lambda *_: None,
) -> bytes:
    """Read a regular file through one descriptor; raises as :func:`read_open`.

    NotFound: No such file; PermissionDenied: It is a symbolic link.
    """
    with _open_file(folder, filename) as file:
        return read_open(file, filename, limit, check)


def read_open(
    file: io.BufferedReader,
    filename: str,
    limit: int,
    check: Callable[[str, io.BufferedReader, int], None] = lambda *_: None,
) -> bytes:
    """Read an open file whole.

    Raises UnsafeCheckpoint: As :func:`hash_file`, or written to meanwhile.
    """
    size = _check_open(file, filename, limit, check)
    data = file.read(size + 1)
    if len(data) != size:
        raise UnsafeCheckpoint(f"{filename}: its size changed while it was read; try again")
    return data


def hash_file(
    folder: int, filename: str, limit: int, check: Callable[[str, io.BufferedReader, int], object]
) -> bytes:
    """sha256 of a regular file, which is read a piece at a time.

    ``check`` is given name, file and size, and may raise before that. Raises as :func:`read_file`;
    UnsafeCheckpoint: No regular file, empty, above ``limit``, or mostly holes.
    """
    with _open_file(folder, filename) as file:
        _check_open(file, filename, limit, check)
        return hashlib.file_digest(file, "sha256").digest()


def _check_open(
    file: io.BufferedReader,
    filename: str,
    limit: int,
    check: Callable[[str, io.BufferedReader, int], object],
) -> int:
    """Size of an open file, at its beginning, that may be read."""
    status = os.fstat(file.fileno())
    size = status.st_size
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeCheckpoint(f"{filename}: not a regular file")
    if size > limit:
        problem = f"{filename}: {size} bytes, above the limit of {limit}"
        raise UnsafeCheckpoint(problem, reason="CHECKPOINT_TOO_LARGE")
    if not size:
        raise UnsafeCheckpoint(f"{filename}: empty file")
    if not has_data(file.fileno(), size, LEAST_DATA):
        raise UnsafeCheckpoint(
            f"{filename}: less than {LEAST_DATA:.0%} of its {size} bytes are on disk, the others "
            "are holes; copy it again",
            reason="CHECKPOINT_WEIGHTS_REFUSED",
        )
    check(filename, file, size)
    file.seek(0)
    return size


def list_checkpoints(root: Path) -> list[CheckpointEntry]:
    """List every weights file beside a ``config.json`` below ``root``, by name, then by file.

    Follows no link, opens no file, and searches no folder more than ``MAX_LISTING_DEPTH`` deep.
    Being listed does not mean that a checkpoint will load. Raises FailedPrecondition: ``root``
    cannot be opened.
    """
    os.close(_open_root(root))
    entries = []
    for name, folder, _, files in _folders(root):
        if (config := _status(folder, CONFIG_NAME)) is not None:
            for filename in filter(is_weights_name, files):
                if (weights := _status(folder, filename)) is not None:
                    entries.append(_entry(folder, name, filename, config, weights))
    return sorted(entries, key=lambda entry: (entry.name, entry.weights))


def list_others(root: Path) -> list[tuple[str, Hint]]:
    """Name and look of every folder below ``root`` that holds what cannot be loaded as it is."""
    found = []
    for name, folder, inner, _ in _folders(root):
        if (look := look_into(folder, name)) is not None:
            found.append((name, look))
            if "hf:" in look.command:
                inner.clear()
    return sorted(found)


def _folders(root: Path) -> Iterator[tuple[str, int, list[str], list[str]]]:
    """Each folder below a root: its name, open, the folders to go on with, and its files."""
    for path, inner, files, folder in os.fwalk(root, follow_symlinks=False):
        inner[:] = [name for name in inner if not name.startswith(".")]  # of downloads
        relative = Path(path).relative_to(root)
        if len(relative.parts) >= MAX_LISTING_DEPTH:
            inner.clear()
        if relative.parts:
            yield relative.as_posix(), folder, inner, files


def check_config(folder: int, name: str) -> os.stat_result:
    """Status of the config; where there is none NotFound says what the folder holds instead."""
    try:
        return _stat_file(folder, CONFIG_NAME)
    except NotFound as error:
        look = look_below(folder, name)
        if look is None:
            raise
        command = f"; next: {look.command}" if look.command else ""
        raise NotFound(f"{error.message}: {look.problem}{command}") from None


def find_checkpoint(root: Path, name: str, weights: str = "") -> CheckpointEntry:
    """The pair of folder and weights file that a load would read, unread; raises as the load."""
    with open_folder(root, name) as folder:
        config = check_config(folder, name)
        filename = choose_weights(folder, name, weights)
        return _entry(folder, name, filename, config, _stat_file(folder, filename))


def folder_time(root: Path, name: str) -> int:
    """Return when a file of a checkpoint's folder was last added, renamed or removed; 0: unknown.

    Follows links as far as the folder, and opens nothing.
    """
    try:
        return os.lstat(f"{root}/{name}").st_mtime_ns
    except (OSError, ValueError):  # of a name that no file can have
        return 0


def is_unmoved(root: Path, entry: CheckpointEntry, changed: int) -> bool:
    """Tell whether finding an entry again, whose folder had this :func:`folder_time`, finds it.

    With four system calls, as every request makes them; :func:`find_checkpoint` makes a dozen.
    """
    files = (CONFIG_NAME, entry.weights, OPTIONS_NAME)[: len(entry.stamp) // 3]
    try:
        stamp: tuple[int, ...] = ()
        for file in files:
            status = os.lstat(f"{root}/{entry.name}/{file}")
            stamp += status.st_ino, status.st_size, status.st_mtime_ns
    except OSError:
        return False
    return stamp == entry.stamp and folder_time(root, entry.name) == changed != 0


def _entry(
    folder: int, name: str, filename: str, config: os.stat_result, weights: os.stat_result
) -> CheckpointEntry:
    stamp: tuple[int, ...] = ()
    for status in filter(None, (config, weights, _status(folder, OPTIONS_NAME))):
        stamp += status.st_ino, status.st_size, status.st_mtime_ns
    return CheckpointEntry(name, filename, weights.st_size, stamp=stamp)


def _status(folder: int, filename: str) -> os.stat_result | None:
    """Status of a regular file; None for what is none, or gone."""
    try:
        status = os.stat(filename, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _stat_file(folder: int, filename: str) -> os.stat_result:
    status = _status(folder, filename)
    if status is not None:  # with one system call, as every request makes it
        return status
    with _open_file(folder, filename) as file:
        return os.fstat(file.fileno())


def _open_file(folder: int, filename: str) -> io.BufferedReader:
    try:
        descriptor = open_part(folder, filename)
    except OSError as error:
        raise _explained(error, filename) from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # which Python opens as no file
        os.close(descriptor)
        raise UnsafeCheckpoint(f"{filename}: not a regular file")
    return os.fdopen(descriptor, "rb")


def _open_root(root: Path) -> int:
    try:
        return os.open(root, FOLDER)
    except OSError as error:
        raise FailedPrecondition(
            f"the server's checkpoint root cannot be opened: {error.strerror}",
            reason="CHECKPOINT_ROOT_UNREADABLE",
        ) from error


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


def _explained(error: OSError, label: str) -> AcpcError:
    part = error.filename
    if error.errno == errno.ELOOP:
        return PermissionDenied(
            f"{label}: {part!r} is a symbolic link, and links are not followed; put the files "
            "below the checkpoint root"
        )
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{label}: {part!r} does not exist")
    if isinstance(error, NotADirectoryError):
        return NotFound(f"{label}: {part!r} is not a folder")
    problem = f"{label}: {part!r} cannot be opened: {error.strerror}"
    return shortage(error) or UnsafeCheckpoint(problem)
