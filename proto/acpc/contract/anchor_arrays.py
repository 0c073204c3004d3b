"""What every array of anchors is; and some anchors in memory, or read a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from acpc.arrays import NDArray
from acpc.contract.errors import ArgumentError, below
from acpc.contract.tensor import Array
from acpc.contract.visual_changes import check_group

SMALL_ARRAYS = ("action_blocks", "endpoint_states", "labels", "anchor_ids", "trajectory_ids")
"""Every array that all anchors have, but the frames, in the order of the digest."""
VIEWS = "views/"
"""Before the name of a group of views, in the name of its array."""
DIRECTIONS = "directions/"
"""The same of a group of probe directions."""
MAX_EXTRA_ARRAYS = 256
"""Arrays of a set beside those that every set has."""
CUT_BYTES = 2**23
"""Frames and views of a shard as they are cut here, 8 MiB."""

# Element type and axes. States and labels have the axis of the horizon, or neither has it.
_ARRAYS: dict[str, tuple[type, str]] = {
    "frames": (np.uint8, "anchors, steps, height, width, 3"),
    "action_blocks": (np.float32, "anchors, blocks, block width"),
    "endpoint_states": (np.float64, "anchors, horizon, state width"),
    "labels": (np.int64, "anchors, horizon"),
    "anchor_ids": (np.int64, "anchors"),
    "trajectory_ids": (np.int64, "anchors"),
}
# The same by what a name is, or begins with.
_EXTRAS: dict[str, tuple[type, str]] = {
    VIEWS: (np.uint8, "anchors, views, history, height, width, 3"),
    DIRECTIONS: (np.float32, "anchors, probes, history, height, width, 3"),
    "proprio": (np.float32, "anchors, steps, features"),
}


class Form(NamedTuple):
    """Element type, None for one that is unknown, and shape of an array."""

    dtype: np.dtype[np.generic] | None
    shape: tuple[int, ...]


def extra_array(name: str) -> tuple[type, str]:
    """Element type and axes of an array beside those that all anchors have.

    Raises ArgumentError, ``name``: There is no such array.
    """
    prefix, slash, group = name.partition("/")
    known = _EXTRAS.get(prefix + slash)
    if known is None:
        wanted = "views/GROUP, directions/GROUP or proprio"
        raise ArgumentError("name", f"found {name[:120]!r}, wanted {wanted}")
    if slash:
        check_group(group, "name")
    return known


def has_steps(name: str) -> bool:
    """Whether the second axis of an array is the frames of an anchor, history first."""
    _, axes = _ARRAYS.get(name) or extra_array(name)
    return axes.startswith("anchors, steps")


def check_array(name: str, found: Form | Frames, known: Mapping[str, int]) -> None:
    """Checks one array against ``known`` axes.

    Raises ArgumentError: Names ``name``, ``dtype`` or ``shape``, or nothing for an axis of time
    that does not fit the frames.
    """
    dtype, axes = _ARRAYS.get(name) or extra_array(name)
    if found.dtype != dtype:
        raise ArgumentError("dtype", f"found {found.dtype}, wanted {np.dtype(dtype).name}")
    names, shape = axes.split(", "), tuple(found.shape)
    known = {"3": 3, **known}
    if known.get("horizon") == 0:
        names = [axis for axis in names if axis != "horizon"]
    sized = ", ".join(f"{axis} {known[axis]}" if axis in known else axis for axis in names)
    wrong = f"found {list(shape[:8])}, wanted ({sized.replace('3 3', '3')})"
    if len(shape) != len(names) or min(shape) < 1:
        raise ArgumentError("shape", wrong)
    for axis, extent in zip(names, shape, strict=True):
        if extent != known.get(axis, extent):
            raise ArgumentError("" if axis in ("blocks", "horizon") else "shape", wrong)


def check_arrays(
    history: int, arrays: Mapping[str, Form | Frames], path: Callable[[str], str] = str
) -> None:
    """Checks arrays of anchors, the frames among them, against what they are and each other.

    ``arrays`` has them by name, or their :class:`Form`; ``path`` is the field of an array.

    Raises ArgumentError: Names ``history``, or an array's path followed by what :func:`check_array`
    names.
    """
    with below(path("frames")):
        check_array("frames", arrays["frames"], {})
    anchors, steps, height, width, _ = arrays["frames"].shape
    if not 1 <= history < steps:
        raise ArgumentError("history", f"found {history}; {steps} frames allow 1 to {steps - 1}")
    # States and labels of the last frame alone have no axis for it.
    each = "endpoint_states" in arrays and len(arrays["endpoint_states"].shape) == 3
    of_frames = {"anchors": anchors, "steps": steps, "height": height, "width": width}
    of_time = {"history": history, "blocks": steps - 1, "horizon": (steps - history) * each}
    for name, array in arrays.items():
        with below(path(name)):
            check_array(name, array, of_frames | of_time)


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

    def __getitem__(self, part: slice, /) -> Any:
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
        try:
            check_arrays(self.history, self.arrays, _field)
        except ArgumentError as error:
            path = error.field.removesuffix(".dtype").removesuffix(".shape").removesuffix(".name")
            raise ArgumentError(f"anchors.{path}", error.description) from error

    @classmethod
    def of(cls, history: int, arrays: Mapping[str, Any]) -> AnchorArrays:
        """Anchors with ``arrays`` by their names in the contract; raises as the class does."""
        groups: dict[str, dict[str, Any]] = {VIEWS: {}, DIRECTIONS: {}}
        plain = {}
        for name, array in arrays.items():
            prefix, slash, group = name.partition("/")
            if slash:
                groups[prefix + slash][group] = array
            else:
                plain[name] = array
        return cls(history, views=groups[VIEWS], directions=groups[DIRECTIONS], **plain)

    @property
    def arrays(self) -> dict[str, Any]:
        """Every array that there is, by its name in the contract."""
        given = {name: getattr(self, name) for name in ("frames", *SMALL_ARRAYS)}
        return {name: array for name, array in given.items() if array is not None} | self.extras

    @property
    def small(self) -> dict[str, Array]:
        """The ``SMALL_ARRAYS`` by name; each anchor its own trajectory where none is known."""
        small = {name: getattr(self, name) for name in SMALL_ARRAYS}
        if self.trajectory_ids is None:
            small["trajectory_ids"] = np.arange(len(self), dtype=np.int64)
        return small

    @property
    def large(self) -> dict[str, Any]:
        """The frames, and the arrays that not every set has, by their names in the contract."""
        return {"frames": self.frames, **self.extras}

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

    def part(self, start: int, stop: int) -> AnchorArrays:
        """Anchors [start, stop), with their frames, views and directions in memory."""
        arrays = {
            name: np.ascontiguousarray(array[start:stop]) for name, array in self.arrays.items()
        }
        return self.of(self.history, arrays)

    def cuts(self, start: int = 0) -> Iterator[AnchorArrays]:
        """The anchors from ``start`` on, a few at a time."""
        one = sum(
            int(np.prod(array.shape[1:])) * array.dtype.itemsize for array in self.large.values()
        )
        step = max(1, CUT_BYTES // max(1, one))
        for begin in range(start, len(self), step):
            yield self.part(begin, min(begin + step, len(self)))


def _field(name: str) -> str:
    """Where a caller gave the array of a name."""
    kind, slash, group = name.partition("/")
    return f"{kind}[{group!r}]" if slash else kind
