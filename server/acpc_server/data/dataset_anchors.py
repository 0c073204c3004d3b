"""Anchors of a dataset file that is opened anew for every read, and seen to be the same."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from jaxtyping import UInt8

from acpc_server.data.anchors import SMALL_ARRAYS, Anchors, anchors_digest, frame_digests
from acpc_server.data.drawn import DrawnAnchors
from acpc_server.data.hdf5 import Hdf5Dataset
from acpc_server.errors import FailedPrecondition

DIGEST_BYTES = 32


class DatasetAnchors(Anchors):
    """Anchors that outlive the opening of their file. They hold all but the frames.

    Args:
        drawn: The anchors, of an open dataset.
        reopen: Opens the dataset again.
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
            FailedPrecondition: The file holds other frames now, is damaged, or is no dataset.
            NotFound, PermissionDenied: It is gone, or has become a link.
        """
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
