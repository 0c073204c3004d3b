"""Anchors: the logged windows on which a checkpoint is measured."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from acpc.contract import SMALL_ARRAYS, anchors_digest, frame_digests
from jaxtyping import Float32, Float64, Int64, UInt8

from acpc_server.errors import InvalidArgument


class Anchors(ABC):
    """n anchors: h history frames, H observed future frames, the actions between, the endpoint.

    The small arrays are whole; frames are read a range of anchors at a time, so that a set may be
    larger than memory. ``AnchorBatch`` holds its frames, a stored anchor set reads them from disk.

    Attributes:
        history: Frames h of the history; the other frames are the future.
        action_blocks: Normalised; block k leaves frame k, float32 (n, h + H - 1, block width).
        endpoint_states: Standardised state at the last future frame, float64 (n, state width).
        labels: Endpoint-state labels, int64 (n,).
        anchor_ids: Identities that key the draws, int64 (n,), not negative.
        trajectory_ids: Trajectory each anchor was cut from, int64 (n,), not negative.
    """

    history: int
    action_blocks: Float32[np.ndarray, "n blocks block_width"]
    endpoint_states: Float64[np.ndarray, "n state_width"]
    labels: Int64[np.ndarray, "n"]
    anchor_ids: Int64[np.ndarray, "n"]
    trajectory_ids: Int64[np.ndarray, "n"]

    @property
    def count(self) -> int:
        """Anchors n."""
        return len(self.anchor_ids)

    @property
    def horizon(self) -> int:
        """Future frames H."""
        return int(self.action_blocks.shape[1]) + 1 - self.history

    @property
    @abstractmethod
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``."""

    @abstractmethod
    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """RGB frames of anchors [start, stop), history first."""

    def small_arrays(self, start: int = 0, stop: int | None = None) -> dict[str, np.ndarray]:
        """Every array but the frames, of anchors [start, stop), by name; all by default."""
        return {name: getattr(self, name)[start:stop] for name in SMALL_ARRAYS}


@dataclass(frozen=True)
class AnchorBatch(Anchors):
    """Anchors whose frames are in memory.

    Attributes:
        frames: RGB frames, uint8 (n, h + H, height, width, 3). The others as in ``Anchors``.

    Raises:
        InvalidArgument: The arrays do not fit each other, or hold a number that is not finite.
    """

    history: int  # the axes "_n" must agree too: __post_init__ says so by name
    frames: UInt8[np.ndarray, "_n steps height width 3"]
    action_blocks: Float32[np.ndarray, "_n blocks block_width"]
    endpoint_states: Float64[np.ndarray, "_n state_width"]
    labels: Int64[np.ndarray, "_n"]
    anchor_ids: Int64[np.ndarray, "_n"]
    trajectory_ids: Int64[np.ndarray, "_n"]

    def __post_init__(self) -> None:
        n, steps = self.frames.shape[:2]
        if not 1 <= self.history < steps:
            raise InvalidArgument(
                "history", f"is {self.history}; {steps} frames allow 1 to {steps - 1} and a future"
            )
        for field in SMALL_ARRAYS:
            found = len(getattr(self, field))
            if found != n:
                raise InvalidArgument(field, f"has {found} anchors, but frames has {n}")
        if self.action_blocks.shape[1] != steps - 1:
            raise InvalidArgument(
                "action_blocks",
                f"has {self.action_blocks.shape[1]} blocks an anchor; {steps} frames need "
                f"{steps - 1}, one leaving each frame but the last",
            )
        for field in ("action_blocks", "endpoint_states"):
            if not np.isfinite(getattr(self, field)).all():
                raise InvalidArgument(field, "holds NaN or infinite numbers")
        for field in ("anchor_ids", "trajectory_ids"):
            if (getattr(self, field) < 0).any():
                raise InvalidArgument(field, "holds a negative number")

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        return self.frames.shape[2], self.frames.shape[3]

    @cached_property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``."""
        return anchors_digest(
            self.history, self.frame_size, self.small_arrays(), frame_digests(self.frames)
        )

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """RGB frames of anchors [start, stop), history first."""
        return self.frames[start:stop]
