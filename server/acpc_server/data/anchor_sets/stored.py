"""Reads the anchors of a stored set."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from acpc_server.data.anchor_sets.info import SetInfo
from acpc_server.data.anchor_sets.shards import (
    DIGEST_BYTES,
    SUFFIX,
    damaged,
    read_frames,
    read_members,
)
from acpc_server.data.anchors import SMALL_ARRAYS, Anchors, anchors_digest

SMALL = f"anchors{SUFFIX}"
"""What ``StoredAnchors`` holds in memory: the arrays of ``read_small``."""

_READERS = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="anchor-reader")


class StoredAnchors(Anchors):
    """Anchors of a stored set; every number is checked against the set's digest.

    The small arrays when it is opened, frames whenever they are read. Safe to share among threads.

    Raises:
        FailedPrecondition: A file is gone or damaged.
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
        if found != info.digest:
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
        """RGB frames of anchors [start, stop), history first.

        Shards are inflated side by side: on a fast device they would be what a score waits for.

        Raises:
            FailedPrecondition: A file is gone or damaged.
        """
        first, last = np.searchsorted(self._starts, [start, stop - 1], side="right") - 1
        out = np.empty((stop - start, self.history + self.horizon, *self.frame_size, 3), np.uint8)

        def fill(index: int) -> None:
            begin, end = int(self._starts[index]), int(self._starts[index + 1])
            low, high = max(start, begin), min(stop, end)
            frames = self._shard(begin, end)
            out[low - start : high - start] = frames[low - begin : high - begin]
            if index == last:  # what comes next begins in this shard, or after it
                self._latest = begin, frames

        list(_READERS.map(fill, range(first, last + 1)))
        return out

    def _shard(self, begin: int, end: int) -> np.ndarray:
        latest = self._latest
        if latest is not None and latest[0] == begin:
            return latest[1]
        digests = self._digests[DIGEST_BYTES * begin : DIGEST_BYTES * end]
        return read_frames(self._folder / f"{begin:08d}{SUFFIX}", digests)
