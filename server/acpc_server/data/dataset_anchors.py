"""Anchors of a dataset file that is opened anew for every read, and seen to be the same."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from jaxtyping import UInt8

from acpc_server.data.anchors import SMALL_ARRAYS, Anchors, anchors_digest, frame_digests
from acpc_server.data.drawn import DrawnAnchors
from acpc_server.data.hdf5 import Hdf5Dataset
from acpc_server.errors import FailedPrecondition


class DatasetAnchors(Anchors):
    """Anchors that outlive the opening of their file. They hold all but the frames.

    Args:
        drawn: The anchors, of an open dataset; every frame is read once, for its digest.
        reopen: Opens the dataset again.
    """

    def __init__(
        self, drawn: DrawnAnchors, reopen: Callable[[], AbstractContextManager[Hdf5Dataset]]
    ) -> None:
        self.history = drawn.history
        for name in SMALL_ARRAYS:
            setattr(self, name, getattr(drawn, name))
        self._frame_size = drawn.frame_size
        self._rows = drawn.frame_rows
        self._column = drawn.pixels.name
        self._reopen = reopen
        self._of_frames = [
            one
            for start, stop in drawn.cuts()
            for one in frame_digests(drawn.read_frames(start, stop))
        ]
        self._digest = anchors_digest(
            self.history, self._frame_size, self.small_arrays(), self._of_frames
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
        if frames is None or frame_digests(frames) != self._of_frames[start:stop]:
            raise FailedPrecondition(
                f"dataset {dataset.name!r} holds other frames than when its anchors were drawn",
                reason="DATASET_CHANGED",
            )
        return frames
