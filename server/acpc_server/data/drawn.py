"""Anchors of an open dataset, whose frames are read on request."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from acpc_server.data.anchors import AnchorBatch, Anchors, anchors_digest, frame_digests
from acpc_server.data.columns import Column
from acpc_server.errors import ResourceExhausted

MAX_FRAME_BYTES = 2**32
"""Frames of one batch, 4 GiB; the paper's 100 anchors of 11 frames at 224 pixels are 0.16 GiB."""

CUT_BYTES = 2**23
"""Frames read at a time, 8 MiB, where all are read."""


@dataclass(frozen=True)
class DrawnAnchors(Anchors):
    """Anchors that ``draw_anchors`` chose. Usable as long as their dataset is open.

    Attributes:
        pixels: Column of the frames.
        frame_rows: Rows of each anchor's frames in it. The others as in ``Anchors``.
    """

    history: int
    pixels: Column
    frame_rows: Int64[np.ndarray, "n steps"]
    action_blocks: Float32[np.ndarray, "n blocks block_width"]
    endpoint_states: Float64[np.ndarray, "n state_width"]
    labels: Int64[np.ndarray, "n"]
    anchor_ids: Int64[np.ndarray, "n"]
    trajectory_ids: Int64[np.ndarray, "n"]

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        return self.pixels.shape[1], self.pixels.shape[2]

    @cached_property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``; reads every frame once."""
        cuts = (self.read_frames(start, stop) for start, stop in self.cuts())
        of_frames = (one for frames in cuts for one in frame_digests(frames))
        return anchors_digest(self.history, self.frame_size, self.small_arrays(), of_frames)

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """RGB frames of anchors [start, stop), history first.

        Raises:
            FailedPrecondition: The stored bytes are damaged.
        """
        return self.pixels.gather(self.frame_rows[start:stop])

    def cuts(self) -> Iterator[tuple[int, int]]:
        """Ranges [start, stop) of anchors whose frames fill some megabytes."""
        step = max(1, CUT_BYTES // self._frame_bytes(1))
        for start in range(0, self.count, step):
            yield start, min(start + step, self.count)

    def batch(self, start: int = 0, stop: int | None = None) -> AnchorBatch:
        """Anchors [start, stop), all by default, with their frames in memory.

        Raises:
            FailedPrecondition: The stored bytes are damaged.
            ResourceExhausted: The frames would not fit the limit.
        """
        rows = self.frame_rows[start:stop]
        size = self._frame_bytes(len(rows))
        if size > MAX_FRAME_BYTES:
            raise ResourceExhausted(
                f"{len(rows)} anchors of {rows.shape[1]} frames hold "
                f"{size} bytes; {MAX_FRAME_BYTES} are read at once, so ask for fewer anchors"
            )
        return AnchorBatch(
            history=self.history,
            frames=self.pixels.gather(rows),
            **self.small_arrays(start, stop),
        )

    def _frame_bytes(self, anchors: int) -> int:
        return int(anchors * self.frame_rows.shape[1] * np.prod(self.pixels.shape[1:]))
