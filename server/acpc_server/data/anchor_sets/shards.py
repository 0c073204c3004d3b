"""Anchors on disk: shards of consecutive ones, written whole, and the stored set they make.

A shard is one NPZ file: the small arrays, ``frames`` (bytes as they arrived, deflated when ``zlib``
is true), ``frames_shape``, ``frame_digests`` (a sha256 for each anchor), and ``own_trajectories``,
true when the uploader named no trajectories.
"""

import os
import threading
import zipfile
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
from acpc.contract import SMALL_ARRAYS, anchors_digest, endpoints_digest, frame_digests
from jaxtyping import UInt8

from acpc_server.data.anchor_sets.files import write_whole
from acpc_server.data.anchor_sets.info import SetInfo
from acpc_server.data.anchors import (
    AnchorBatch,
    Anchors,
)
from acpc_server.errors import FailedPrecondition

SUFFIX = ".npz"
DIGEST_BYTES = 32
# What a file holds beside its arrays.
_OVERHEAD_BYTES = 4096


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> int:
    """Writes an NPZ file; returns its bytes. Raises ResourceExhausted: the volume is full."""
    # NumPy's stub takes the names for its own flags.
    save: Callable[..., None] = np.savez
    return write_whole(path, lambda file: save(file, **arrays))


def shard_bytes(shard: AnchorBatch, packed: bytes | None) -> int:
    """About what a shard takes on disk."""
    frames = shard.frames.nbytes if packed is None else len(packed)
    small = sum(array.nbytes for array in shard.small_arrays().values())
    return frames + small + DIGEST_BYTES * shard.count + _OVERHEAD_BYTES


def write_shard(
    folder: Path, start: int, shard: AnchorBatch, packed: bytes | None, own_trajectories: bool
) -> int:
    """Writes the shard that starts at ``start``, frames ``packed`` or plain; returns its size."""
    stored = shard.frames.reshape(-1) if packed is None else np.frombuffer(packed, np.uint8)
    members = {
        **shard.small_arrays(),
        "frames": stored,
        "frames_shape": np.array(shard.frames.shape, np.int64),
        "frame_digests": np.frombuffer(b"".join(frame_digests(shard.frames)), np.uint8),
        "zlib": np.array(packed is not None),
        "own_trajectories": np.array(own_trajectories),
    }
    return write_arrays(folder / f"{start:08d}{SUFFIX}", members)


# NumPy parses an array's header as Python, and threads of Python 3.11 that do so at once may get a
# SystemError: they share the count of how deep they are.
_PARSING = threading.Lock()


def shard_paths(folder: Path) -> list[Path]:
    """The shards of a set, in order."""
    return sorted(folder.glob(f"{'[0-9]' * 8}*{SUFFIX}"))


def next_offset(folder: Path) -> int:
    """The first anchor that is not in the shards of a folder."""
    paths = shard_paths(folder)
    if not paths:
        return 0
    (labels,) = read_members(paths[-1], "labels")
    return int(paths[-1].stem) + len(labels)


def read_members(path: Path, *names: str) -> list[np.ndarray]:
    """Some members of a shard. Raises FailedPrecondition: the file is gone or damaged."""
    try:
        with _PARSING, np.load(path, allow_pickle=False) as members:
            return [members[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise damaged(path, str(error)) from error


def read_small(paths: list[Path]) -> dict[str, np.ndarray]:
    """The small arrays of consecutive shards, joined, with ``frame_digests`` and ``starts``."""
    names = (*SMALL_ARRAYS, "frame_digests")
    parts = [read_members(path, *names) for path in paths]
    joined = {name: np.concatenate(arrays) for name, *arrays in zip(names, *parts, strict=True)}
    counts = [len(part[names.index("labels")]) for part in parts]
    joined["starts"] = np.cumsum([0, *counts], dtype=np.int64)
    return joined


def read_frames(path: Path, digests: bytes) -> UInt8[np.ndarray, "n steps height width 3"]:
    """The frames of a shard. Raises FailedPrecondition: the file is gone or damaged."""
    stored, shape, deflated = read_members(path, "frames", "frames_shape", "zlib")
    size = int(np.prod(shape))
    try:
        raw = zlib.decompressobj().decompress(stored.data, size) if deflated else stored.data
        frames = np.frombuffer(raw, np.uint8).reshape(shape)
    except (ValueError, zlib.error) as error:
        raise damaged(path, str(error)) from error
    if b"".join(frame_digests(frames)) != digests:
        raise damaged(path, "the frames do not have their sha256")
    return frames


def damaged(path: Path, problem: str) -> FailedPrecondition:
    """The error for a file that is not what was written."""
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
    """Anchors of a stored set; every number is checked against the set's digest.

    The small arrays when it is opened, frames whenever they are read; FailedPrecondition where a
    file is gone or damaged. Safe to share among threads.
    """

    def __init__(self, folder: Path, info: SetInfo) -> None:
        self._folder = folder
        self.info = info
        self.history = info.history
        *small, digests, self._starts = read_members(
            folder / SMALL, *SMALL_ARRAYS, "frame_digests", "starts"
        )
        for name, array in zip(SMALL_ARRAYS, small, strict=True):
            setattr(self, name, array)
        self._digests = digests.tobytes()
        found = anchors_digest(self.history, self.frame_size, self.small_arrays(), [self._digests])
        endpoints = endpoints_digest(self.small_arrays())
        if found != info.digest or endpoints != info.endpoints_digest:
            raise damaged(folder / SMALL, "the arrays do not have the set's digest")
        self._latest: tuple[int, np.ndarray] | None = None

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        return self.info.height, self.info.width

    @property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``."""
        return self.info.digest

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """RGB frames of anchors [start, stop), history first; FailedPrecondition if damaged."""
        first, last = np.searchsorted(self._starts, [start, stop - 1], side="right") - 1
        out = np.empty((stop - start, self.history + self.horizon, *self.frame_size, 3), np.uint8)

        def fill(index: int) -> None:
            begin, end = int(self._starts[index]), int(self._starts[index + 1])
            low, high = max(start, begin), min(stop, end)
            frames = self._shard(begin, end)
            out[low - start : high - start] = frames[low - begin : high - begin]
            if index == last:  # what comes next begins in this shard, or after it
                self._latest = begin, frames

        # Side by side: on a fast device they would be what a score waits for.
        list(_readers().map(fill, range(first, last + 1)))
        return out

    def _shard(self, begin: int, end: int) -> np.ndarray:
        latest = self._latest
        if latest is not None and latest[0] == begin:
            return latest[1]
        digests = self._digests[DIGEST_BYTES * begin : DIGEST_BYTES * end]
        return read_frames(self._folder / f"{begin:08d}{SUFFIX}", digests)
