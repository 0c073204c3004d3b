"""Anchors on disk: shards of consecutive ones, written whole, and the stored set they make.

A shard is one NPZ file: the small arrays, ``frames`` (bytes as they arrived, deflated when ``zlib``
is true), ``frame_digests`` (a sha256 for each anchor), and ``layout``, a ``ShardLayout`` as JSON.
Arrays beside those have members of their own as frames have, named ``<name>.values`` and so on.
"""

import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from acpc.contract import (
    SMALL_ARRAYS,
    AnchorArrays,
    Form,
    check_arrays,
    endpoints_digest,
    frame_digests,
)

from acpc_server.data.anchor_sets.files import write_whole
from acpc_server.data.anchor_sets.info import SetInfo
from acpc_server.data.anchors import DIGEST_BYTES, FRAMES, Anchors
from acpc_server.errors import FailedPrecondition, InvalidArgument, parsing

SUFFIX = ".npz"
# What a file holds beside its arrays.
_OVERHEAD_BYTES = 4096


Packed: TypeAlias = Mapping[str, bytes]
"""Arrays deflated by zlib, by name; one that is absent is stored plain."""


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> int:
    """Write an NPZ file and return its bytes; ResourceExhausted when the volume is full."""
    # NumPy's stub takes the names for its own flags.
    save: Callable[..., None] = np.savez
    return write_whole(path, lambda file: save(file, **arrays))


def shard_bytes(shard: AnchorArrays, packed: Packed) -> int:
    """Estimate what a shard takes on disk."""
    large = shard.large
    sizes = (len(packed.get(name, array.data.cast("B"))) for name, array in large.items())
    small = sum(array.nbytes for array in shard.small.values())
    return sum(sizes) + small + len(large) * (DIGEST_BYTES * len(shard) + _OVERHEAD_BYTES)


class Layout(NamedTuple):
    """The name, dtype and shape for each anchor of an extra array."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class ShardLayout(NamedTuple):
    """The layout that all shards of a set share."""

    frame_size: tuple[int, int]
    block_width: int
    state_width: int
    endpoints: int  # future frames that have states
    own_trajectories: bool
    extras: tuple[Layout, ...]

    @classmethod
    def of(cls, shard: AnchorArrays, own_trajectories: bool) -> "ShardLayout":
        """Return the layout of a shard in memory."""
        states, width = shard.endpoint_states, shard.action_blocks.shape[2]
        endpoints = 1 if states.ndim == 2 else states.shape[1]
        arrays = sorted(shard.extras.items())
        extras = tuple(Layout(name, array.dtype.name, array.shape[1:]) for name, array in arrays)
        height, side = shard.frames.shape[2:4]
        return cls((height, side), width, states.shape[-1], endpoints, own_trajectories, extras)

    @classmethod
    def read(cls, path: Path) -> "ShardLayout":
        """Read the layout of a stored shard; raises as ``read_members``."""
        (listed,) = read_members(path, "layout")
        try:
            size, width, states, endpoints, own, extras = json.loads(listed.tobytes())
            found = tuple(Layout(name, dtype, tuple(shape)) for name, dtype, shape in extras)
            return cls(tuple(size), width, states, endpoints, own, found)
        except (TypeError, ValueError) as error:
            raise damaged(path, str(error)) from error


def write_shard(
    folder: Path, start: int, shard: AnchorArrays, packed: Packed, layout: ShardLayout
) -> int:
    """Write the shard that starts at ``start``; return its size."""
    layout_bytes = np.frombuffer(json.dumps(layout).encode(), np.uint8)
    members = {**shard.small, "layout": layout_bytes}
    for name, array in shard.large.items():
        deflated = packed.get(name)
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        digests = np.frombuffer(b"".join(frame_digests(array)), np.uint8)
        values = raw if deflated is None else np.frombuffer(deflated, np.uint8)
        parts = values, np.array(deflated is not None), digests
        members |= zip(_members(name), parts, strict=True)
    return write_arrays(folder / f"{start:08d}{SUFFIX}", members)


def _members(name: str) -> tuple[str, str, str]:
    """Name the members with an array's bytes, whether they are deflated, and each digest."""
    if name == FRAMES:
        return FRAMES, "zlib", "frame_digests"
    return f"{name}.values", f"{name}.zlib", f"{name}.digests"


def shard_paths(folder: Path) -> list[Path]:
    """Return the shards of a set, in order."""
    return sorted(folder.glob(f"{'[0-9]' * 8}*{SUFFIX}"))


def next_offset(folder: Path) -> int:
    """Return the first anchor that is not in the shards of a folder."""
    paths = shard_paths(folder)
    if not paths:
        return 0
    (labels,) = read_members(paths[-1], "labels")
    return int(paths[-1].stem) + len(labels)


def read_members(path: Path, *names: str) -> list[np.ndarray]:
    """Read members of a shard; FailedPrecondition when the file is gone or damaged."""

    def read() -> list[np.ndarray]:
        with np.load(path, allow_pickle=False) as members:
            return [members[name] for name in names]

    try:
        return parsing(read)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise damaged(path, str(error)) from error


def read_small(paths: list[Path], extras: Sequence[str]) -> dict[str, np.ndarray]:
    """Join the small arrays of consecutive shards, with ``starts`` and all digests."""
    names = (*SMALL_ARRAYS, "frame_digests", *(_members(name)[2] for name in extras))
    parts = [read_members(path, *names) for path in paths]
    joined = {name: np.concatenate(arrays) for name, *arrays in zip(names, *parts, strict=True)}
    counts = [len(part[names.index("labels")]) for part in parts]
    joined["starts"] = np.cumsum([0, *counts], dtype=np.int64)
    return joined


def read_values(
    path: Path, name: str, dtype: np.dtype, shape: tuple[int, ...], digests: bytes
) -> np.ndarray:
    """Read frames or an extra array of a shard; FailedPrecondition unless digests agree."""
    stored, deflated = read_members(path, *_members(name)[:2])
    size = math.prod(shape) * dtype.itemsize
    try:
        raw = zlib.decompressobj().decompress(stored.data, size) if deflated else stored.data
        values = np.frombuffer(raw, dtype).reshape(shape)
    except (ValueError, zlib.error) as error:
        raise damaged(path, str(error)) from error
    if b"".join(frame_digests(values)) != digests:
        raise damaged(path, f"the {name} do not have their sha256")
    return values


def damaged(path: Path, problem: str) -> FailedPrecondition:
    """Return the error for a file that is not what was written."""
    return FailedPrecondition(
        f"anchor set file {path.parent.name}/{path.name} is gone or damaged ({problem}); delete "
        "the set and upload it again",
        reason="ANCHOR_SET_DAMAGED",
    )


SMALL = f"anchors{SUFFIX}"
"""What ``StoredAnchors`` holds in memory: the arrays of ``read_small``."""


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="anchor-reader")


class StoredAnchors(Anchors):
    """Anchors in a folder of shards: the small arrays of its ``SMALL``, frames whenever read.

    FailedPrecondition where a file is gone or damaged. Safe to share among threads.
    """

    def __init__(
        self, folder: Path, history: int, frames: tuple[int, ...], extras: Iterable[Layout]
    ) -> None:
        forms = {FRAMES: (np.dtype(np.uint8), frames)}
        forms |= {name: (np.dtype(dtype), shape) for name, dtype, shape in extras}
        members = {name: _members(name)[2] for name in forms}
        names = ("starts", *SMALL_ARRAYS, *members.values())
        small = dict(zip(names, read_members(folder / SMALL, *names), strict=True))
        starts, count = small["starts"], small["anchor_ids"].shape[:1]
        given = {name: Form(dtype, (*count, *shape)) for name, (dtype, shape) in forms.items()}
        try:
            check_arrays(history, given | {name: small[name] for name in SMALL_ARRAYS})
        except InvalidArgument as error:
            raise damaged(folder / SMALL, str(error)) from error
        whole = starts.ndim == 1 and starts.dtype == np.int64 and len(starts) > 1
        if not whole or (starts[0], starts[-1]) != (0, *count) or (np.diff(starts) < 1).any():
            raise damaged(folder / SMALL, "its shards do not follow each other")
        self._take(history, small, forms)
        self._folder, self._starts = folder, starts
        self._digests = {name: small[member].tobytes() for name, member in members.items()}
        self._latest: dict[bool, tuple[str, int, np.ndarray]] = {}  # of frames, and of another

    @classmethod
    def open(cls, folder: Path, info: SetInfo) -> "StoredAnchors":
        """Open a set; every number is checked against its digest, those of frames once read."""
        frames = info.history + info.horizon, info.height, info.width, 3
        extras = [Layout(x.name, x.dtype, x.shape) for x in info.extras]
        found = cls(folder, info.history, frames, extras)
        found.windows = info.windows
        if (found.digest, found.endpoints_digest) != (info.digest, info.endpoints_digest):
            raise damaged(folder / SMALL, "the arrays do not have the set's digest")
        return found

    @property
    def endpoints_digest(self) -> str:
        """The sha256 of states and labels at every future frame; empty where there are none."""
        return endpoints_digest(self.small_arrays())

    def digests(self, name: str) -> bytes:
        """Return the sha256 of each anchor's part of what :meth:`read` gives, joined."""
        return self._digests[name]

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return frames, history first, or an array beside them, of anchors [start, stop)."""
        dtype, shape = self.forms[name]
        first, last = np.searchsorted(self._starts, [start, stop - 1], side="right") - 1
        out = np.empty((stop - start, *shape), dtype)

        def fill(index: int) -> None:
            begin, end = int(self._starts[index]), int(self._starts[index + 1])
            low, high = max(start, begin), min(stop, end)
            latest = self._latest.get(name == FRAMES)
            if latest is not None and latest[:2] == (name, begin):
                values = latest[2]
            else:
                path = self._folder / f"{begin:08d}{SUFFIX}"
                digests = self._digests[name][DIGEST_BYTES * begin : DIGEST_BYTES * end]
                values = read_values(path, name, dtype, (end - begin, *shape), digests)
            out[low - start : high - start] = values[low - begin : high - begin]
            if index == last:  # what comes next begins in this shard, or after it
                self._latest[name == FRAMES] = (name, begin, values)

        # Side by side: on a fast device they would be what a score waits for.
        list(_readers().map(fill, range(first, last + 1)))
        return out
