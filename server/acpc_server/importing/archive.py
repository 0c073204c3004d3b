"""Opens a torch archive, a ZIP of stored members, and hands out its pickle and its storages.

Nothing is trusted: the directory is bounded before it is parsed, members are unique, stored and
apart, and a tensor is a checked part of one storage. NumPy alone is needed.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from acpc.arrays import NDArray

from acpc_server.errors import FailedPrecondition, NotFound, UnsafeCheckpoint, shortage

MAX_DIRECTORY_BYTES = 2 << 20
MAX_PICKLE_BYTES = 8 << 20
MAX_AXES = 8
# NumPy's type of each kind of storage; of bfloat16 the bits.
DTYPES = {
    "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2", "DoubleStorage": "<f8",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "|i1",
    "ByteStorage": "|u1", "BoolStorage": "|b1",
}  # fmt: skip
BFLOAT16 = "BFloat16Storage"


def unsafe(name: str, problem: str) -> UnsafeCheckpoint:
    """The error for a file that is not read."""
    return UnsafeCheckpoint(f"{name}: {problem}; nothing was executed", reason="IMPORT_REJECTED")


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A checked view of one storage: ``key`` in the archive, all counts in elements."""

    kind: str
    key: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def count(self) -> int:
        """Elements of the tensor."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor written out."""
        return self.count * np.dtype(DTYPES[self.kind]).itemsize

    @property
    def expanded(self) -> bool:
        """Whether several of its elements are one place in memory."""
        sides = zip(self.shape, self.strides, strict=True)
        return any(size > 1 and not stride for size, stride in sides)


class _Bounded:
    """Lets ``zipfile`` read a directory, of bounded size."""

    def __init__(self, file: io.BufferedReader) -> None:
        self.seek, self.tell, self._read = file.seek, file.tell, file.read

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._read(MAX_DIRECTORY_BYTES + 1 if size < 0 else min(size, 1 << 22))
        if len(data) > MAX_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"a directory above {MAX_DIRECTORY_BYTES} bytes")
        return data


class Archive:
    """An open archive; close it.

    Raises NotFound: No such file; UnsafeCheckpoint: No archive of torch.save, damaged, or one that
    could mislead.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound(f"{path} does not exist") from None
        except OSError as error:
            raise FailedPrecondition(f"{path} cannot be opened: {error.strerror}") from None
        if not path.is_file():
            os.close(descriptor)
            raise unsafe(self.name, "not a regular file")
        self._file = os.fdopen(descriptor, "rb")
        try:
            self._stamp = self._stat()
            self.size = self._stamp[0]
            self._members = self._read_directory()
            self.pickle = self._read_pickle()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def digest(self) -> str:
        """The sha256 of the whole file, hex; FailedPrecondition if it was written to meanwhile."""
        self._file.seek(0)
        sha = hashlib.file_digest(self._file, "sha256")
        if self._stat() != self._stamp:
            raise FailedPrecondition(f"{self.name}: changed while it was read; try again")
        return sha.hexdigest()

    def tensor(self, storage: tuple[str, str, int], layout: tuple[Any, ...]) -> StoredTensor:
        """Check offset, shape and strides against the storage: kind, key and elements."""
        kind, key, elements = storage
        offset, shape, strides = layout
        if len(shape) != len(strides) or len(shape) > MAX_AXES:
            raise unsafe(self.name, f"a tensor of {len(shape)} axes and {len(strides)} strides")
        sides = (offset, *shape, *strides)
        if any(type(side) is not int or not 0 <= side < 1 << 48 for side in sides):
            raise unsafe(self.name, "a tensor whose sizes are no counts")
        held = self._members.get(f"data/{key}", (0, -1))[1]
        if held < 0 or elements * np.dtype(DTYPES[kind]).itemsize != held:
            raise unsafe(self.name, f"storage {key!r:.40} is not as long as its tensors say")
        reach = offset + sum((a - 1) * b for a, b in zip(shape, strides, strict=True)) + 1
        if reach > elements and all(shape):
            raise unsafe(self.name, f"a tensor reaches past the end of storage {key!r:.40}")
        return StoredTensor(kind, key, offset, shape, strides)

    def array(self, tensor: StoredTensor) -> NDArray[Any]:
        """Read a tensor, its elements in order; of bfloat16 the bits."""
        dtype = np.dtype(DTYPES[tensor.kind])
        if not tensor.count:
            return np.zeros(tensor.shape, dtype)
        reach = 1 + sum((a - 1) * b for a, b in zip(tensor.shape, tensor.strides, strict=True))
        start = self._members[f"data/{tensor.key}"][0] + tensor.offset * dtype.itemsize
        flat = np.frombuffer(self._at(start, reach * dtype.itemsize), dtype)
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        view = np.lib.stride_tricks.as_strided(flat, tensor.shape, strides, writeable=False)
        return np.array(view)

    def _stat(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _at(self, start: int, size: int) -> bytes:
        if 0 <= start <= start + size <= self.size:
            self._file.seek(start)
            if len(data := self._file.read(size)) == size:
                return data
        raise unsafe(self.name, "shorter than its directory says")

    def _read_directory(self) -> dict[str, tuple[int, int]]:
        """Place and size of each member, by its name below the archive's own folder."""
        if self._at(0, min(self.size, 2)) != b"PK":
            raise unsafe(
                self.name,
                "not an archive of torch.save, which is a ZIP file (files older than torch 1.6, or "
                "saved with _use_new_zipfile_serialization=False, must be saved again; for a "
                "pointer of Git LFS: git lfs pull)",
            )
        try:
            with zipfile.ZipFile(_Bounded(self._file)) as archive:
                entries = archive.infolist()
        except Exception as error:  # noqa: BLE001 - damaged bytes raise whatever they like
            if (short := shortage(error)) is not None:
                raise short from None
            raise unsafe(self.name, f"a truncated or damaged archive ({error})"[:200]) from None
        spans, members = [], {}
        for entry in entries:
            if entry.compress_type or entry.flag_bits & 1 or entry.compress_size != entry.file_size:
                raise unsafe(self.name, "compressed or encrypted members; torch.save stores them")
            start = self._start(entry)
            spans.append((start, start + entry.file_size))
            name = entry.filename.partition("/")[2]
            if name in members:
                raise unsafe(self.name, f"two members are named {name!r:.80}")
            members[name] = start, entry.file_size
        spans.sort()
        ends = [0, *(end for _, end in spans)]
        if any(start < end for (start, _), end in zip(spans, ends, strict=False)):
            raise unsafe(self.name, "members that share bytes")
        if ends[-1] > self.size:
            raise unsafe(self.name, "members longer than the file")
        if "data.pkl" not in members:
            raise unsafe(self.name, "a ZIP file without data.pkl, so none of torch.save's")
        if "constants.pkl" in members:
            raise unsafe(self.name, "a TorchScript program; save the module's state_dict instead")
        return members

    def _start(self, entry: zipfile.ZipInfo) -> int:
        """Return where a member's bytes begin, by the header before them."""
        header = self._at(entry.header_offset, 30)
        if header[:4] != b"PK\x03\x04":
            raise unsafe(self.name, "a member without its header")
        lengths = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
        return entry.header_offset + 30 + sum(lengths)

    def _read_pickle(self) -> bytes:
        if "byteorder" in self._members:
            start, size = self._members["byteorder"]
            if self._at(start, min(size, 6)) != b"little":
                raise unsafe(self.name, "numbers in big-endian order")
        start, size = self._members["data.pkl"]
        if size > MAX_PICKLE_BYTES:
            raise unsafe(self.name, f"a pickle of {size} bytes, above {MAX_PICKLE_BYTES}")
        return self._at(start, size)
