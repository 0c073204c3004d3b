"""Anchors: the logged windows on which a checkpoint is measured."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from acpc_server.errors import InvalidArgument


@dataclass(frozen=True)
class AnchorBatch:
    """n anchors: h history frames, H observed future frames, the actions between, the endpoint.

    Attributes:
        history: Frames h of the history; the other frames are the future.
        frames: RGB frames, uint8 (n, h + H, height, width, 3).
        action_blocks: Normalised; block k leaves frame k, float32 (n, h + H - 1, block width).
        endpoint_states: Standardised state at the last future frame, float64 (n, state width).
        labels: Endpoint-state labels, int64 (n,).
        anchor_ids: Identities that key the draws, int64 (n,), not negative.

    Raises:
        InvalidArgument: The arrays do not fit each other, or hold a number that is not finite.
    """

    history: int  # the axes "_n" must agree too: __post_init__ says so by name
    frames: UInt8[np.ndarray, "_n steps height width 3"]
    action_blocks: Float32[np.ndarray, "_n blocks block_width"]
    endpoint_states: Float64[np.ndarray, "_n state_width"]
    labels: Int64[np.ndarray, "_n"]
    anchor_ids: Int64[np.ndarray, "_n"]

    def __post_init__(self) -> None:
        n, steps = self.frames.shape[:2]
        if not 1 <= self.history < steps:
            raise InvalidArgument(
                "history", f"is {self.history}; {steps} frames allow 1 to {steps - 1} and a future"
            )
        for field in ("action_blocks", "endpoint_states", "labels", "anchor_ids"):
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
        if (self.anchor_ids < 0).any():
            raise InvalidArgument("anchor_ids", "holds a negative number")

    @property
    def horizon(self) -> int:
        """Future frames H."""
        return int(self.frames.shape[1]) - self.history

    @cached_property
    def digest(self) -> str:
        """Sha256 over the history length and every array: name, dtype, shape, bytes."""
        digest = hashlib.sha256(f"acpc/anchors/1 history={self.history}".encode())
        for name in ("frames", "action_blocks", "endpoint_states", "labels", "anchor_ids"):
            array = np.ascontiguousarray(getattr(self, name))
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"\n{name} {little.dtype.str} {little.shape}\n".encode())
            digest.update(little.data)
        return digest.hexdigest()
