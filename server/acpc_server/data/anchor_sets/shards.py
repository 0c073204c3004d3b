"""Anchors on disk: shards of consecutive ones, written whole, and the stored set they make.

A shard is one NPZ file: the small arrays, ``frames`` (bytes as they arrived, deflated when ``zlib``
is true), ``frame_digests`` (a sha256 for each anchor), and ``layout``, which all shards of a set
share, as JSON. Arrays beside those have members of their own as frames have, named
``<name>.values`` and so on.
"""

import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

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
SMALL = f"anchors{SUFFIX}"
"""The small arrays of all shards of a set, with every digest and the ``starts`` of shards."""
# What a file holds beside its arrays.
_OVERHEAD_BYTES = 4096


Packed: TypeAlias = Mapping[str, bytes]
"""Arrays deflated by zlib, by name; one that is absent is stored plain."""
Layout: TypeAlias = list[Any]
"""As JSON: frame size, block width, state width, future frames that have states, whether each
anchor is its own trajectory; name, dtype and shape of each extra array for an anchor."""


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    # NumPy's stub takes the names for its own flags.
    save: Callable[..., None] = np.savez
    write_whole(path, lambda file: save(file, **arrays))


def shard_bytes(shard: AnchorArrays, packed: Packed) -> int:
    """Estimate what a shard takes on disk."""
    large = shard.large
    sizes = (len(packed.get(name, array.data.cast("B"))) for name, array in large.items())
    small = sum(array.nbytes for array in shard.small.values())
    return sum(sizes) + small + len(large) * (DIGEST_BYTES * len(shard) + _OVERHEAD_BYTES)


def layout_of(shard: AnchorArrays, own_trajectories: bool) -> Layout:
    """Return the layout of a shard in memory."""
    states, width = shard.endpoint_states, shard.action_blocks.shape[2]
    endpoints = 1 if states.ndim == 2 else states.shape[1]
    arrays = sorted(shard.extras.items())
    extras = [[name, array.dtype.name, [*array.shape[1:]]] for name, array in arrays]
    size = [*shard.frames.shape[2:4]]
    return [size, width, states.shape[-1], endpoints, own_trajectories, extras]


def write_shard(
    folder: Path, start: int, shard: AnchorArrays, packed: Packed, layout: Layout
) -> None:
    """Write the shard that starts at ``start``; ResourceExhausted when the volume is full."""
    layout_bytes = np.frombuffer(json.dumps(layout).encode(), np.uint8)
    members = {**shard.small, "layout": layout_bytes}
    for name, array in shard.large.items():
        deflated = packed.get(name)
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        digests = np.frombuffer(b"".join(frame_digests(array)), np.uint8)
        values = raw if deflated is None else np.frombuffer(deflated, np.uint8)
        parts = values, np.array(deflated is not None), digests
        members |= zip(_members(name), parts, strict=True)
    _write_arrays(folder / f"{start:08d}{SUFFIX}", members)


def _members(name: str) -> tuple[str, str, str]:
    """Name the members with an array's bytes, whether they are deflated, and each digest."""
    if name == FRAMES:
        return FRAMES, "zlib", "frame_digests"
    return f"{name}.values", f"{name}.zlib", f"{name}.digests"


def _shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{'[0-9]' * 8}*{SUFFIX}"))


def arrived(folder: Path) -> tuple[int, Layout | None]:
    """Return the first anchor that is not in the shards of a folder, and what these share.

    FailedPrecondition: One is damaged.
    """
    paths = _shard_paths(folder)
    if not paths:
        return 0, None
    (labels,) = _read_members(paths[-1], "labels")
    (layout,) = _read_members(paths[0], "layout")
    try:
        return int(paths[-1].stem) + len(labels), json.loads(layout.tobytes())
    except ValueError as error:
        raise damaged(paths[0], str(error)) from error


def _read_members(path: Path, *names: str) -> list[np.ndarray]:
    """Read members of a shard; FailedPrecondition when the file is gone or damaged."""

    def read() -> list[np.ndarray]:
        with np.load(path, allow_pickle=False) as members:
            return [members[name] for name in names]

    try:
        return parsing(read)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise damaged(path, str(error)) from error


def join_small(folder: Path, extras: Sequence[str]) -> int:
    """Write the small arrays of all shards, which have these extra arrays, into ``SMALL``.

    Returns the bytes of shards and this file. FailedPrecondition: A shard is damaged.
    """
    names = (*SMALL_ARRAYS, *(_members(name)[2] for name in (FRAMES, *extras)))
    paths = _shard_paths(folder)
    parts = [_read_members(path, *names) for path in paths]
    joined = {name: np.concatenate(arrays) for name, *arrays in zip(names, *parts, strict=True)}
    counts = [len(part[names.index("labels")]) for part in parts]
    joined["starts"] = np.cumsum([0, *counts], dtype=np.int64)
    _write_arrays(folder / SMALL, joined)
    return sum(path.stat().st_size for path in (*paths, folder / SMALL))


def damaged(path: Path, problem: str) -> FailedPrecondition:
    """Return the error for a file that is not what was written."""
    return FailedPrecondition(
        f"anchor set file {path.parent.name}/{path.name} is gone or damaged ({problem}); delete "
        "the set and upload it again",
        reason="ANCHOR_SET_DAMAGED",
    )


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="anchor-reader")


class StoredAnchors(Anchors):
    """Anchors in a folder of shards: the small arrays of its ``SMALL``, frames whenever read.

    Every number is checked against its digest, those of frames once read; the small arrays against
    those of ``info``, unless it has none yet. FailedPrecondition where a file is gone or damaged.
    Safe to share among threads.
    """

    def __init__(self, folder: Path, info: SetInfo) -> None:
        frames = info.history + info.horizon, info.height, info.width, 3
        forms: dict[str, tuple[np.dtype, tuple[int, ...]]] = {FRAMES: (np.dtype(np.uint8), frames)}
        forms |= {array.name: (np.dtype(array.dtype), array.shape) for array in info.extras}
        members = {name: _members(name)[2] for name in forms}
        names = ("starts", *SMALL_ARRAYS, *members.values())
        small = dict(zip(names, _read_members(folder / SMALL, *names), strict=True))
        starts, count = small["starts"], small["anchor_ids"].shape[:1]
        given = {name: Form(dtype, (*count, *shape)) for name, (dtype, shape) in forms.items()}
        try:
            check_arrays(info.history, given | {name: small[name] for name in SMALL_ARRAYS})
        except InvalidArgument as error:
            raise damaged(folder / SMALL, str(error)) from error
        whole = starts.ndim == 1 and starts.dtype == np.int64 and len(starts) > 1
        if not whole or (starts[0], starts[-1]) != (0, *count) or (np.diff(starts) < 1).any():
            raise damaged(folder / SMALL, "its shards do not follow each other")
        self._take(info.history, small, forms)
        self.windows = info.windows
        self._folder, self._starts = folder, starts
        self._digests = {name: small[member].tobytes() for name, member in members.items()}
        self._latest: dict[bool, tuple[str, int, np.ndarray]] = {}  # of frames, and of another
        wanted = info.digest, info.endpoints_digest
        if info.digest and (self.digest, self.endpoints_digest) != wanted:
            raise damaged(folder / SMALL, "the arrays do not have the set's digest")

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
                values = self._read_shard(name, begin, end)
            out[low - start : high - start] = values[low - begin : high - begin]
            if index == last:  # what comes next begins in this shard, or after it
                self._latest[name == FRAMES] = (name, begin, values)

        # Side by side: on a fast device they would be what a score waits for.
        list(_readers().map(fill, range(first, last + 1)))
        return out

    def _read_shard(self, name: str, begin: int, end: int) -> np.ndarray:
        dtype, shape = self.forms[name]
        path = self._folder / f"{begin:08d}{SUFFIX}"
        stored, deflated = _read_members(path, *_members(name)[:2])
        size = (end - begin) * math.prod(shape) * dtype.itemsize
        try:
            raw = zlib.decompressobj().decompress(stored.data, size) if deflated else stored.data
            values = np.frombuffer(raw, dtype).reshape(end - begin, *shape)
        except (ValueError, zlib.error) as error:
            raise damaged(path, str(error)) from error
        digests = self._digests[name][DIGEST_BYTES * begin : DIGEST_BYTES * end]
        if b"".join(frame_digests(values)) != digests:
            raise damaged(path, f"the {name} do not have their sha256")
        return values
