"""Anchors of a dataset file that is reopened for every read and checked to be unchanged."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from jaxtyping import UInt8

from acpc_server.data.anchors import SMALL_ARRAYS, Anchors, anchors_digest, frame_digests
from acpc_server.data.drawn import DrawnAnchors
from acpc_server.data.hdf5 import Hdf5Dataset
from acpc_server.errors import FailedPrecondition

DIGEST_BYTES = 32
# Frames that are held when there are no more of them: opening the file and reading it row by row
# takes the interpreter away from calls that are served meanwhile. The paper's 100 anchors of 11
# frames of 224 pixels are 158 MiB.
HELD_BYTES = 2**28


class DatasetAnchors(Anchors):
    """Anchors that outlive the opening of their file. Of many, they hold all but the frames.

    Args:
        drawn: The anchors, of an open dataset.
        reopen: Opens the dataset again.
        stamp: Changes when the file does.
        frame_digests: Sha256 of each anchor's frames, one after the other, where they are known;
            otherwise every frame is read once.
        check: Called between those reads; may raise to end them.

    Attributes:
        frame_digests: As given or found.
    """

    def __init__(
        self,
        drawn: DrawnAnchors,
        reopen: Callable[[], AbstractContextManager[Hdf5Dataset]],
        stamp: Callable[[], str],
        frame_digests: bytes,
        check: Callable[[], None],
    ) -> None:
        self.history = drawn.history
        for name in SMALL_ARRAYS:
            setattr(self, name, getattr(drawn, name))
        self._frame_size = drawn.frame_size
        self._rows = drawn.frame_rows
        self._column = drawn.pixels.name
        self._reopen = reopen
        self._stamp = stamp
        self._held: tuple[str, np.ndarray] | None = None  # frames, and the file's stamp
        self.frame_digests = frame_digests or _read_digests(drawn, check)
        self._digest = anchors_digest(
            self.history, self._frame_size, self.small_arrays(), [self.frame_digests]
        )

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        return self._frame_size

    @property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``."""
        return self._digest

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """RGB frames of anchors [start, stop), history first.

        Raises:
            FailedPrecondition: The file now holds other frames, is damaged, or is not a dataset.
            NotFound, PermissionDenied: It is gone, or is now a link.
        """
        if self._rows.size * 3 * int(np.prod(self._frame_size)) > HELD_BYTES:
            return self._read(start, stop)
        held = self._held
        stamp = self._stamp()
        if held is None or held[0] != stamp:
            try:
                whole = self._read(0, len(self._rows))
            except FailedPrecondition:
                return self._read(start, stop)  # these may be unchanged
            # The stamp from before the read, so that a write during it is noticed the next time.
            held = self._held = (stamp, whole)
        return held[1][start:stop].copy()

    def _read(self, start: int, stop: int) -> np.ndarray:
        with self._reopen() as dataset:
            column = dataset.pixel_column(self._column)
            rows = self._rows[start:stop]
            same = column.shape[1:3] == self._frame_size and rows.max(initial=-1) < column.shape[0]
            frames = column.gather(rows) if same else None
        wanted = self.frame_digests[DIGEST_BYTES * start : DIGEST_BYTES * stop]
        if frames is None or b"".join(frame_digests(frames)) != wanted:
            raise FailedPrecondition(
                f"dataset {dataset.name!r} holds other frames than when its anchors were drawn",
                reason="DATASET_CHANGED",
            )
        return frames


def _read_digests(drawn: DrawnAnchors, check: Callable[[], None]) -> bytes:
    found: list[bytes] = []
    for start, stop in drawn.cuts():
        check()
        found += frame_digests(drawn.read_frames(start, stop))
    return b"".join(found)
