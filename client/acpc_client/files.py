"""Files that are whole or not there, and archives of plain arrays."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import uuid
import zipfile
import zlib
from pathlib import Path

import numpy as np
from acpc.contract import Array

from acpc_client.errors import ArgumentError

UNPACKED_BYTES = 2**28
"""What the arrays of a compressed file may take, 256 MiB; of one that is not, its own size."""

# What zipfile and numpy raise for damaged bytes; one that is encrypted is a RuntimeError.
_BROKEN = (
    OSError, ValueError, KeyError, EOFError, RuntimeError, MemoryError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file so that a crash at any moment leaves the old content or the new one.

    Raises OSError: It cannot be written; ``filename`` is the path.
    """
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def read_npz(file: Path | bytes) -> dict[str, Array]:
    """The arrays of an NPZ file, or of its content; objects are never unpickled.

    Raises ArgumentError: It is not such a file; its field is the path.
    """
    path = "" if isinstance(file, bytes) else str(file)
    try:
        content = file if isinstance(file, bytes) else file.read_bytes()
    except OSError as error:
        raise ArgumentError(path, f"cannot be read: {error.strerror}") from error
    if not content.startswith(b"PK"):
        raise ArgumentError(path, "is not an NPZ file")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            size, most = (
                sum(x.file_size for x in packed.infolist()),
                max(UNPACKED_BYTES, len(content)),
            )
    except _BROKEN as error:
        raise ArgumentError(path, "is a damaged NPZ file") from error
    if size > most:
        raise ArgumentError(
            path,
            f"declares {size} bytes, packed in {len(content)}; at most {most} are unpacked: "
            "write it with numpy.savez, which does not compress",
        )
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except _BROKEN as error:
        damaged = "is a damaged NPZ file, or holds more than plain arrays"
        raise ArgumentError(path, damaged) from error
    if other := [name for name, found in arrays.items() if not isinstance(found, np.ndarray)]:
        raise ArgumentError(path, f"its entry {other[0]!r} is not an array")
    return arrays
