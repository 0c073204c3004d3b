"""Anchors in the caller's hands: arrays, or files read a few anchors at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import (
    DIRECTIONS,
    SMALL_ARRAYS,
    VIEWS,
    Array,
    anchors_digest,
    check_extra,
    extra_digest,
    frame_digests,
)

from acpc_client.errors import ArgumentError

CUT_BYTES = 2**23
"""Frames and views of a shard as they are cut here, 8 MiB."""

_WANTED: dict[str, tuple[type, str]] = {
    "frames": (np.uint8, "anchors, history + horizon, height, width, 3"),
    "action_blocks": (np.float32, "anchors, history + horizon - 1, block width"),
    "endpoint_states": (np.float64, "anchors, state width"),
    "labels": (np.int64, "anchors"),
    "anchor_ids": (np.int64, "anchors"),
    "trajectory_ids": (np.int64, "anchors"),
}


class Frames(Protocol):
    """The interface of frames; NumPy arrays and memory maps have it, a reader of yours may too."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
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
        views: Views of each history that you made, by the name of their group: RGB, uint8 (n,
            views, h, height, width, 3). Jobs measure a group as the shift ``GivenViews(group)``.
            Read in slices, as frames are.
        directions: Directions of each history's pixels for the sensitivity study, by the name of
            their group: float32 (n, probes, h, height, width, 3). Their lengths are of no account.
        proprio: What a robot feels at each frame, float32 (n, h + H, width); None: nothing.

    Raises ArgumentError: An array has another dtype or shape, or does not fit the others.
    """

    history: int
    frames: Frames
    action_blocks: NDArray[np.float32]
    endpoint_states: NDArray[np.float64]
    labels: NDArray[np.int64]
    anchor_ids: NDArray[np.int64]
    trajectory_ids: NDArray[np.int64] | None = None
    views: Mapping[str, Frames] = field(default_factory=dict)
    proprio: NDArray[np.float32] | None = None
    directions: Mapping[str, Frames] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (dtype, one_endpoint) in _WANTED.items():
            array, axes = getattr(self, name), one_endpoint
            if array is None and name == "trajectory_ids":
                continue
            found = f"found {array.dtype} {tuple(array.shape)}"
            each = name in ("endpoint_states", "labels") and self.every_endpoint
            if each:
                axes = axes.replace("anchors", "anchors, horizon")
            if array.dtype != dtype or len(array.shape) != axes.count(",") + 1:
                wanted = np.dtype(dtype).name
                raise ArgumentError(f"anchors.{name}", f"{found}, wanted {wanted} ({axes})")
            if array.shape[0] != len(self):
                raise ArgumentError(f"anchors.{name}", f"{found} beside {len(self)} anchors")
            if each and array.shape[1] != self.horizon:
                wrong = f"found {array.shape[1]} future frames, wanted {self.horizon}"
                raise ArgumentError(f"anchors.{name}", wrong)
        steps = self.frames.shape[1]
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
        self._check_extras()

    def _check_extras(self) -> None:
        for name, array in self.extras.items():
            kind, slash, group = name.partition("/")
            path = f"anchors.{kind}[{group!r}]" if slash else f"anchors.{kind}"
            try:
                check_extra(name, array.dtype, array.shape[1:], self.history, self.frames.shape[1:])
            except ArgumentError as error:
                raise ArgumentError(path, error.description) from error
            if array.shape[0] != len(self):
                raise ArgumentError(path, f"found {array.shape[0]} beside {len(self)} anchors")

    @property
    def extras(self) -> dict[str, Frames]:
        """The arrays that not every set has, by their names in the contract."""
        given = {
            f"{prefix}{group}": array
            for prefix, groups in ((DIRECTIONS, self.directions), (VIEWS, self.views))
            for group, array in sorted(groups.items())
        }
        return given if self.proprio is None else {"proprio": self.proprio, **given}

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
        """Anchors [start, stop), with their frames, views and directions in memory."""
        small = {
            name: array[start:stop]
            for name in (*SMALL_ARRAYS, "proprio")
            if (array := getattr(self, name)) is not None
        }

        def cut(array: Frames) -> Array:
            return np.ascontiguousarray(array[start:stop])

        return replace(
            self,
            frames=cut(self.frames),
            views={group: cut(array) for group, array in self.views.items()},
            directions={group: cut(array) for group, array in self.directions.items()},
            **small,
        )

    def cuts(self, start: int = 0) -> Iterator[AnchorArrays]:
        """The anchors from ``start`` on, a few at a time."""
        large = (self.frames, *self.views.values(), *self.directions.values())
        one = sum(int(np.prod(array.shape[1:])) * array.dtype.itemsize for array in large)
        step = max(1, CUT_BYTES // max(1, one))
        for begin in range(start, len(self), step):
            yield self.part(begin, min(begin + step, len(self)))


def digest_of(anchors: AnchorArrays) -> str:
    """The digest that the set of these anchors has; reads every frame once."""
    frames: list[bytes] = []
    large: dict[str, list[bytes]] = {name: [] for name in anchors.extras}
    for part in anchors.cuts():
        frames += frame_digests(part.frames[0 : len(part)])
        for name, array in part.extras.items():
            large[name] += frame_digests(array[0 : len(part)])
    small = {name: getattr(anchors, name) for name in SMALL_ARRAYS}
    if anchors.trajectory_ids is None:
        small["trajectory_ids"] = np.arange(len(anchors), dtype=np.int64)
    extras = {
        name: extra_digest(name, array.dtype, array.shape, large[name])
        for name, array in anchors.extras.items()
    }
    height, width = anchors.frames.shape[2:4]
    return anchors_digest(anchors.history, (height, width), small, frames, extras)
