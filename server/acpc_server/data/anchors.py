"""Anchors: the logged windows on which a checkpoint is measured."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from acpc.contract import SMALL_ARRAYS, anchors_digest, endpoints_at, frame_digests
from jaxtyping import Float32, Float64, Int64, UInt8

from acpc_server.errors import FailedPrecondition, InvalidArgument

CUT_BYTES = 2**23
"""Frames read at a time, 8 MiB, where all are read."""


class Anchors(ABC):
    """n anchors: h history frames, H observed future frames, the actions between, the endpoint.

    The small arrays are whole; frames are read a range of anchors at a time, so that a set may be
    larger than memory. ``AnchorBatch`` holds its frames, a stored anchor set reads them from disk.

    Attributes:
        history: Frames h of the history; the other frames are the future.
        action_blocks: Normalised; block k leaves frame k, float32 (n, h + H - 1, block width).
        endpoint_states: Standardised state at the last future frame, float64 (n, state width), or
            at every future frame, (n, H, state width).
        labels: Endpoint-state labels, int64 (n,), or with every frame's states (n, H).
        anchor_ids: Identities that key the draws, int64 (n,), not negative.
        trajectory_ids: Trajectory each anchor was cut from, int64 (n,), not negative.
        window_blocks: Normalised blocks that leave all frames of the window that each anchor was
            drawn from, (n, h + F, block width); None where the window is not known.
    """

    window_blocks: Float32[np.ndarray, "n window block_width"] | None = None
    history: int
    action_blocks: Float32[np.ndarray, "n blocks block_width"]
    endpoint_states: Float64[np.ndarray, "n *future state_width"]
    labels: Int64[np.ndarray, "n *future"]
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

    def cuts(self, start: int = 0) -> Iterator[tuple[int, int]]:
        """Ranges [start, stop) of anchors, from ``start`` on, whose frames fill some megabytes."""
        one = (self.history + self.horizon) * 3 * int(np.prod(self.frame_size))
        step = max(1, CUT_BYTES // one)
        for first in range(start, self.count, step):
            yield first, min(first + step, self.count)

    def content_digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``; reads every frame."""
        cuts = (self.read_frames(start, stop) for start, stop in self.cuts())
        of_frames = (one for frames in cuts for one in frame_digests(frames))
        return anchors_digest(self.history, self.frame_size, self.small_arrays(), of_frames)

    def first(self, count: int) -> "Anchors":
        """The first ``count`` of them, with the states and labels that they have among all."""
        return self if count >= self.count else FirstAnchors(self, count)

    def at_horizon(self, horizon: int) -> "Anchors":
        """The same anchors with ``horizon`` future frames, endpoint included; these where they fit.

        Raises:
            FailedPrecondition: They have fewer, or states at their own last frame alone.
        """
        if horizon == self.horizon and self.labels.ndim == 1:
            return self
        if horizon > self.horizon or self.labels.ndim == 1:
            raise FailedPrecondition(
                f"the anchors have {self.horizon} future frames and cannot be used at {horizon}"
            )
        return ShorterAnchors(self, horizon)


class ShorterAnchors(Anchors):
    """Anchors without their last future frames, with states and labels of the last that is left."""

    def __init__(self, whole: Anchors, horizon: int) -> None:
        self.history = whole.history
        for name, array in endpoints_at(whole.small_arrays(), horizon).items():
            setattr(self, name, array)
        self._whole = whole
        self._steps = whole.history + horizon
        self.action_blocks = self.action_blocks[:, : self._steps - 1]

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        return self._whole.frame_size

    @cached_property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``; reads every frame once if some go."""
        return self._whole.digest if self.horizon == self._whole.horizon else self.content_digest()

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """RGB frames of anchors [start, stop), history first."""
        return self._whole.read_frames(start, stop)[:, : self._steps]


class FirstAnchors(Anchors):
    """Anchors without the last of them."""

    def __init__(self, whole: Anchors, count: int) -> None:
        self.history = whole.history
        for name, array in whole.small_arrays(0, count).items():
            setattr(self, name, array)
        self._whole = whole

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        return self._whole.frame_size

    @cached_property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``; reads every frame once."""
        return self.content_digest()

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """RGB frames of anchors [start, stop), history first."""
        return self._whole.read_frames(start, stop)


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
    endpoint_states: Float64[np.ndarray, "_n ... state_width"]
    labels: Int64[np.ndarray, "_n ..."]
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
        future = self.labels.shape[1:]
        if (
            future not in ((), (steps - self.history,))
            or self.endpoint_states.shape[1:-1] != future
        ):
            raise InvalidArgument(
                "endpoint_states",
                f"has shape {self.endpoint_states.shape} beside labels {self.labels.shape}; give "
                f"both at the last future frame, or both at all {steps - self.history}",
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
