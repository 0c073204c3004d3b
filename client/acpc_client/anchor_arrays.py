"""Anchors in the caller's hands: arrays, or files read a few anchors at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from acpc.contract import SMALL_ARRAYS, anchors_digest, frame_digests
from numpy.typing import NDArray

from acpc_client.errors import ArgumentError

CUT_BYTES = 2**23
"""Frames of a shard as they are cut here, 8 MiB."""

_WANTED: dict[str, tuple[type[Any], str]] = {
    "frames": (np.uint8, "anchors, history + horizon, height, width, 3"),
    "action_blocks": (np.float32, "anchors, history + horizon - 1, block width"),
    "endpoint_states": (np.float64, "anchors, state width"),
    "labels": (np.int64, "anchors"),
    "anchor_ids": (np.int64, "anchors"),
    "trajectory_ids": (np.int64, "anchors"),
}


class Frames(Protocol):
    """What frames must offer: NumPy arrays and memory maps do, and so may a reader of yours."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """(anchors, history + horizon, height, width, 3)."""
        ...

    def __getitem__(self, part: slice, /) -> Any:  # noqa: ANN401 - an array, or a memory map
        """The frames of consecutive anchors."""
        ...


@dataclass(frozen=True, eq=False)
class AnchorArrays:
    """Anchors to upload, all of a set or a part of it.

    Attributes:
        history: Frames h of the history; the other frames are the observed future.
        frames: RGB, uint8 (n, h + H, height, width, 3). Read in slices, so that a memory map of
            any size will do.
        action_blocks: Normalised; block k leaves frame k, float32 (n, h + H - 1, block width).
        endpoint_states: Standardised state at the last future frame, float64 (n, state width); or
            at every future frame, (n, H, state width), so that scores can take the set at shorter
            horizons too.
        labels: Endpoint-state labels, int64 (n); with the states of every future frame (n, H).
        anchor_ids: Identities that seed the draws, int64 (n), not negative.
        trajectory_ids: Trajectory each anchor was cut from, int64 (n), not negative; None: each
            anchor is its own. Studies keep the anchors of one trajectory together.

    Raises:
        ArgumentError: An array has another dtype or shape, or does not fit the others.
    """

    history: int
    frames: Frames
    action_blocks: NDArray[np.float32]
    endpoint_states: NDArray[np.float64]
    labels: NDArray[np.int64]
    anchor_ids: NDArray[np.int64]
    trajectory_ids: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for name, (dtype, one_endpoint) in _WANTED.items():
            array, axes = getattr(self, name), one_endpoint
            if array is None and name == "trajectory_ids":
                continue
            found = f"found {array.dtype} {tuple(array.shape)}"
            if name in ("endpoint_states", "labels") and self.every_endpoint:
                axes = axes.replace("anchors", "anchors, horizon")
            if array.dtype != dtype or len(array.shape) != axes.count(",") + 1:
                wanted = np.dtype(dtype).name
                raise ArgumentError(f"anchors.{name}", f"{found}, wanted {wanted} ({axes})")
            if array.shape[0] != len(self):
                raise ArgumentError(f"anchors.{name}", f"{found} beside {len(self)} anchors")
        steps = self.frames.shape[1]
        if self.every_endpoint:
            for name in ("endpoint_states", "labels"):
                future = getattr(self, name).shape[1]
                if future != self.horizon:
                    raise ArgumentError(
                        f"anchors.{name}", f"found {future} future frames, wanted {self.horizon}"
                    )
        if not 1 <= self.history < steps:
            raise ArgumentError(
                "anchors.history", f"found {self.history}; {steps} frames allow 1 to {steps - 1}"
            )
        if self.action_blocks.shape[1] != steps - 1:
            raise ArgumentError(
                "anchors.action_blocks",
                f"found {self.action_blocks.shape[1]} blocks an anchor, wanted {steps - 1}: one "
                "leaving each frame but the last",
            )

    def __len__(self) -> int:
        return int(self.frames.shape[0])

    @property
    def horizon(self) -> int:
        """Future frames H."""
        return int(self.frames.shape[1]) - self.history

    @property
    def every_endpoint(self) -> bool:
        """Whether states and labels are those of every future frame."""
        return len(self.endpoint_states.shape) == 3

    def part(self, start: int, stop: int) -> AnchorArrays:
        """Anchors [start, stop), with their frames in memory."""
        small = {
            name: array[start:stop]
            for name in SMALL_ARRAYS
            if (array := getattr(self, name)) is not None
        }
        return replace(self, frames=np.ascontiguousarray(self.frames[start:stop]), **small)

    def cuts(self, start: int = 0) -> Iterator[AnchorArrays]:
        """The anchors from ``start`` on, a few at a time."""
        one = int(np.prod(self.frames.shape[1:]))
        step = max(1, CUT_BYTES // max(1, one))
        for begin in range(start, len(self), step):
            yield self.part(begin, min(begin + step, len(self)))


class Digest:
    """The digest of a set, of parts that come in order; the contract says how it is made.

    Args:
        history: Frames of the history.
    """

    def __init__(self, history: int) -> None:
        self._history = history
        self._frames: list[bytes] = []
        self._shape: tuple[int, ...] = ()
        self._small: dict[str, list[NDArray[Any]]] = {name: [] for name in SMALL_ARRAYS}

    def add(self, part: AnchorArrays) -> None:
        """Takes the next anchors."""
        start = len(self._frames)
        self._frames += frame_digests(part.frames[0 : len(part)])
        self._shape = part.frames.shape[1:]
        own = np.arange(start, start + len(part), dtype=np.int64)
        for name, arrays in self._small.items():
            array = getattr(part, name)
            arrays.append(own if array is None else array)

    def __len__(self) -> int:
        return len(self._frames)

    def value(self) -> str:
        """The digest of what has come."""
        small = {name: np.concatenate(arrays) for name, arrays in self._small.items()}
        height, width = self._shape[1:3]
        return anchors_digest(self._history, (height, width), small, self._frames)


def digest_of(anchors: AnchorArrays) -> str:
    """The digest that the set of these anchors has; reads every frame once."""
    digest = Digest(anchors.history)
    for part in anchors.cuts():
        digest.add(part)
    return digest.value()
