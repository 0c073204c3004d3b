"""Reads archives of ``torch.save``: ZIP files of stored members, of which one is a pickle.

The pickle is described by a process of its own, within limits (:mod:`acpc_server.models.unpickle`).
Here the directory is checked, and a tensor is a checked part of one stored member.
"""

from __future__ import annotations

import io
import json
import math
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acpc_server.errors import UnsafeCheckpoint, shortage

PROGRAM = Path(__file__).with_name("unpickle.py")
MEMORY_MIB, CPU_SECONDS, WALL_SECONDS = 1024, 10, 60
MAX_DIRECTORY_BYTES, MAX_PICKLE_BYTES = 2 << 20, 8 << 20
DTYPES = {
    "FloatStorage": torch.float32, "HalfStorage": torch.float16, "BFloat16Storage": torch.bfloat16,
    "DoubleStorage": torch.float64, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool, "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
}  # fmt: skip
ByteSource = io.BufferedReader | io.BytesIO


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A view of a stored member; all counts in elements."""

    kind: str
    key: str
    elements: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A dict, whose kind is ``dict``, or a module that a pickle describes.

    Attributes:
        depth: Steps from the root.
        kind: Its class.
        tensors: Those of its own that a state dict has; the class of what is there in place of one.
        hidden: Its other tensors.
        attributes: Its numbers and texts; of anything else ``{"type": class}``.
    """

    depth: int
    kind: str
    tensors: dict[str, StoredTensor | str]
    hidden: dict[str, StoredTensor | str]
    attributes: dict[str, Any]


class Archive:
    """A described archive: ``nodes`` by path, ``kind`` of its root, ``names`` that it calls.

    Raises UnsafeCheckpoint: No archive of torch.save, damaged, or one that could mislead.
    """

    def __init__(self, filename: str, data: bytes) -> None:
        self.filename, self._size = filename, len(data)
        self._members = read_directory(filename, io.BytesIO(data), len(data))
        start, size = self._members["data.pkl"]
        told = _describe(filename, data[start : start + size])
        self.kind: str = told["kind"]
        self.names: list[str] = told["names"]
        self.nodes = {
            path: Node(depth, kind, _records(tensors), _records(hidden), attributes)
            for path, (depth, kind, tensors, hidden, attributes) in told["nodes"].items()
        }

    def entries(self, path: str) -> dict[str, StoredTensor | str]:
        """Everything in a dict, in a tensor's place the class of what is none."""
        entries = dict(self.nodes[path].tensors)
        for name, value in self.nodes[path].attributes.items():
            kind = value["type"] if isinstance(value, dict) else type(value).__name__
            if kind == "Tensor":
                raise unsafe(self.filename, f"{name}: tensor names must be strings")
            entries[name] = kind
        return entries

    def check(self, records: dict[str, StoredTensor | str]) -> None:
        """Raise UnsafeCheckpoint for a tensor that is no part of a stored member."""
        named = 0
        for name, stored in records.items():
            if problem := self._fault(stored):
                raise unsafe(self.filename, f"{name}: {problem}")
            if isinstance(stored, StoredTensor):
                named += math.prod(stored.shape) * DTYPES[stored.kind].itemsize
        if named > 2 * self._size:  # a tensor under two names is two once written
            raise unsafe(self.filename, f"its {named} bytes of tensors come from {self._size}")

    def tensors(self, records: dict[str, StoredTensor | str], data: bytes) -> dict[str, Tensor]:
        """Make tensors of their records and the file's bytes; raises as :meth:`check`."""
        self.check(records)
        storages: dict[tuple[str, str], Tensor] = {}
        made = {}
        for name, stored in records.items():
            assert isinstance(stored, StoredTensor)  # noqa: S101 - as checked
            dtype, place = DTYPES[stored.kind], (stored.key, stored.kind)
            if not all(stored.shape):
                made[name] = torch.empty(stored.shape, dtype=dtype)
                continue
            if place not in storages:
                start, held = self._members[f"data/{stored.key}"]
                copied = bytearray(memoryview(data)[start : start + held])
                storages[place] = torch.frombuffer(copied, dtype=dtype)
            made[name] = storages[place].as_strided(stored.shape, stored.strides, stored.offset)
        return made

    def _fault(self, stored: StoredTensor | str) -> str:
        if isinstance(stored, str) or stored.kind not in DTYPES:
            kind = stored if isinstance(stored, str) else stored.kind
            return f"a {kind}, not a tensor, or not a dense CPU tensor"
        held = self._members.get(f"data/{stored.key}", (0, -1))[1]
        if held < 0 or stored.elements * DTYPES[stored.kind].itemsize != held:
            return f"storage {stored.key!r:.40} is not as long as its tensors say"
        sides = zip(stored.shape, stored.strides, strict=True)
        reach = stored.offset + sum((size - 1) * stride for size, stride in sides)
        if all(stored.shape) and reach >= stored.elements:
            return f"a tensor reaches past the end of storage {stored.key!r:.40}"
        if math.prod(stored.shape) > stored.elements:
            return (
                "larger than its stored data, an expanded tensor, many elements of which are one "
                "in memory; save a clone of it"
            )
        return ""


def unsafe(filename: str, problem: str) -> UnsafeCheckpoint:
    """The error for a file that is not read."""
    message = f"{filename}: {problem}; nothing was executed"
    return UnsafeCheckpoint(message, reason="CHECKPOINT_WEIGHTS_REFUSED")


def _records(told: dict[str, Any]) -> dict[str, StoredTensor | str]:
    return {
        name: x
        if isinstance(x, str)
        else StoredTensor(x[0], x[1], x[2], x[3], tuple(x[4]), tuple(x[5]))
        for name, x in told.items()
    }


def _describe(filename: str, pickled: bytes) -> dict[str, Any]:
    """What the program tells of a pickle; UnsafeCheckpoint where it refuses it, or has to end."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), str(MEMORY_MIB), str(CPU_SECONDS)]
    asked = f"{MEMORY_MIB} MiB or {CPU_SECONDS} s to be described"
    try:
        done = subprocess.run(  # noqa: S603 - a file of this package
            command, input=pickled, capture_output=True, timeout=WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise unsafe(filename, f"its pickle asked for more than {asked}") from None
    except (OSError, MemoryError, RuntimeError) as error:
        raise shortage(error) or error from error
    if done.returncode == -signal.SIGXCPU or b'{"limit' in done.stdout[:8]:
        raise unsafe(filename, f"its pickle asked for more than {asked}")
    if -done.returncode in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):  # by the host
        raise shortage(MemoryError()) or MemoryError
    if done.returncode or not done.stdout:
        raise unsafe(
            filename, f"its pickle ended the process that described it, by {done.returncode}"
        )
    told: dict[str, Any] = json.loads(done.stdout)
    if "error" in told:
        raise unsafe(filename, told["error"])
    return told


class _Bounded:
    """Lets ``zipfile`` read a directory, of bounded size."""

    def __init__(self, file: ByteSource) -> None:
        self.seek, self.tell, self._read = file.seek, file.tell, file.read

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._read(MAX_DIRECTORY_BYTES + 1 if size < 0 else min(size, 1 << 22))
        if len(data) > MAX_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"a directory above {MAX_DIRECTORY_BYTES} bytes")
        return data


def read_directory(filename: str, file: ByteSource, size: int) -> dict[str, tuple[int, int]]:
    """Place and size of each member, by its name below the archive's own folder.

    Raises UnsafeCheckpoint: Not torch.save's, members that are compressed, share a name or bytes.
    """
    file.seek(0)
    if file.read(2) != b"PK":
        raise unsafe(
            filename,
            "not an archive of torch.save, which is a ZIP file (files older than torch 1.6, or "
            "saved with _use_new_zipfile_serialization=False, must be saved again; for a pointer "
            "of Git LFS: git lfs pull)",
        )
    try:
        with zipfile.ZipFile(_Bounded(file)) as archive:
            entries = archive.infolist()
    except Exception as error:  # noqa: BLE001 - damaged bytes raise whatever they like
        if (short := shortage(error)) is not None:
            raise short from None
        raise unsafe(filename, f"a truncated or damaged archive ({error})"[:200]) from None
    members = _places(filename, file, size, entries)
    if "data.pkl" not in members:
        raise unsafe(filename, "a ZIP file without data.pkl, so none of torch.save's")
    if "constants.pkl" in members:
        raise unsafe(filename, "a TorchScript program; save the module's state_dict instead")
    start, order = members.get("byteorder", (0, 0))
    file.seek(start)
    if order and file.read(min(order, 6)) != b"little":
        raise unsafe(filename, "numbers in big-endian order")
    if members["data.pkl"][1] > MAX_PICKLE_BYTES:
        raise unsafe(
            filename, f"a pickle of {members['data.pkl'][1]} bytes, above {MAX_PICKLE_BYTES}"
        )
    return members


def _places(
    filename: str, file: ByteSource, size: int, entries: list[zipfile.ZipInfo]
) -> dict[str, tuple[int, int]]:
    spans, members = [], {}
    for entry in entries:
        if entry.compress_type or entry.flag_bits & 1 or entry.compress_size != entry.file_size:
            raise unsafe(filename, "compressed or encrypted members; torch.save stores them")
        file.seek(min(max(0, entry.header_offset), size))
        header = file.read(30)
        if header[:4] != b"PK\x03\x04" or len(header) < 30:
            raise unsafe(filename, "a member without its header, in a truncated or damaged archive")
        lengths = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
        start = entry.header_offset + 30 + sum(lengths)
        spans.append((start, start + entry.file_size))
        name = entry.filename.partition("/")[2]
        if name in members:
            raise unsafe(filename, f"two members are named {name!r:.80}")
        members[name] = start, entry.file_size
    spans.sort()
    ends = [0, *(end for _, end in spans)]
    if any(start < end for (start, _), end in zip(spans, ends, strict=False)):
        raise unsafe(filename, "members that share bytes")
    if ends[-1] > size:
        raise unsafe(filename, "members longer than the file")
    return members
