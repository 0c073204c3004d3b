"""Anchors: the logged windows on which a checkpoint is measured."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as declared
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from acpc.contract import (
    DIRECTIONS,
    SMALL_ARRAYS,
    AnchorArray,
    anchors_digest,
    check_extra,
    endpoints_at,
    extra_digest,
    frame_digests,
    has_steps,
)
from jaxtyping import Float32, Float64, Int64, UInt8

from acpc_server.errors import FailedPrecondition, InvalidArgument

FRAMES = "frames"
"""The name by which frames are read, beside those of the ``extras``."""
DIGEST_BYTES = 32
CUT_BYTES = 2**23
"""Frames read at a time, 8 MiB, where all are read."""


Form: TypeAlias = tuple[np.dtype, tuple[int, ...]]
ANCHOR_BYTES = 2**28
"""Frames of one anchor as recorded, 256 MiB: they are read together, since their sha256 covers all.
Of 224 pixels eleven are 1.6 MiB."""


def check_anchor(steps: int, size: tuple[int, int], field: str) -> None:
    """Raise InvalidArgument, ``field``, where one anchor's frames are more than may be held."""
    if (needed := steps * 3 * size[0] * size[1]) > ANCHOR_BYTES:
        raise InvalidArgument(
            field,
            f"the {steps} frames of an anchor, {size[0]} x {size[1]} pixels, are {needed} bytes, "
            f"over the limit of {ANCHOR_BYTES}; store smaller frames, or ask for a shorter horizon",
            reason="ANCHOR_TOO_LARGE",
        )


def cuts(one: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of anchors [start, stop), of ``one`` bytes each, that fill some megabytes."""
    step = max(1, CUT_BYTES // one)
    for first in range(start, stop, step):
        yield first, min(first + step, stop)


class Anchors(ABC):
    """n anchors: h history frames, H observed future frames, the actions between, the endpoint.

    The small arrays are whole; frames are read a range of anchors at a time, so that a set may be
    larger than memory. ``AnchorBatch`` holds its frames, a stored anchor set reads them from disk.

    Attributes:
        forms: Element type and shape for an anchor of what is read: frames (h + H, height, width,
            3), and by their names the arrays beside them, of which few anchors have any.
        history: Frames h of the history; the other frames are the future.
        action_blocks: Normalised; block k leaves frame k, float32 (n, h + H - 1, block width).
        endpoint_states: Standardised state at the last future frame, float64 (n, state width), or
            at every future frame, (n, H, state width).
        labels: Endpoint-state labels, int64 (n,), or with every frame's states (n, H).
        anchor_ids: Identities that key the draws, int64 (n,), not negative.
        trajectory_ids: Trajectory each anchor was cut from, int64 (n,), not negative.
        window_blocks: Normalised blocks that leave all frames of the window that each anchor was
            drawn from, (n, h + F, block width); None where the window is not known.
        arrays: Those beside frames that are in memory, by name.
        windows: Windows that the anchors are a simple random sample of; None where not known.
        read_as: What a receipt says of how their dataset was read: how actions are normalised, and
            which episodes; empty where not known.
    """

    windows: int | None = None
    read_as: Mapping[str, object] = MappingProxyType({})
    arrays: Mapping[str, np.ndarray] = MappingProxyType({})
    window_blocks: Float32[np.ndarray, "n window block_width"] | None = None
    forms: Mapping[str, Form]
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
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        height, width = self.forms[FRAMES][1][1:3]
        return height, width

    @cached_property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``."""
        small, extras = self.small_arrays(), {array.name: array.digest for array in self.extras}
        frames = [self.digests(FRAMES)]
        return anchors_digest(self.history, self.frame_size, small, frames, extras)

    @cached_property
    def extras(self) -> tuple[AnchorArray, ...]:
        """What the arrays beside frames are, by name."""
        found = []
        for name in sorted(self.forms.keys() - {FRAMES}):
            dtype, shape = self.forms[name]
            digest = extra_digest(name, dtype, (self.count, *shape), [self.digests(name)])
            found.append(AnchorArray(name, dtype.name, shape, digest))
        return tuple(found)

    def digests(self, name: str) -> bytes:
        """Return the sha256 of each anchor's part of what :meth:`read` gives, joined."""
        one = math.prod(self.forms[FRAMES][1])
        parts = (self.read(name, *cut) for cut in cuts(one, 0, self.count))
        return b"".join(digest for part in parts for digest in frame_digests(part))

    @abstractmethod
    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return frames, history first, or an array beside them, of anchors [start, stop)."""

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """Return RGB frames of anchors [start, stop), history first."""
        return self.read(FRAMES, start, stop)

    def action_variants(self, count: int) -> dict[str, Float32[np.ndarray, "m blocks width"]]:
        """Return blocks of the first ``count`` with a usual mistake undone, by its name.

        Of anchors whose dataset is not at hand only the other sign.
        """
        return {"negated_actions": -self.action_blocks[:count]}

    def small_arrays(self, start: int = 0, stop: int | None = None) -> dict[str, np.ndarray]:
        """Return every array but the frames, of anchors [start, stop), by name; all by default."""
        return {name: getattr(self, name)[start:stop] for name in SMALL_ARRAYS}

    def first(self, count: int) -> "Anchors":
        """Return the first ``count`` anchors, with the states and labels they have among all."""
        return self if count >= self.count else PartialAnchors(self, count, self.horizon)

    def at_horizon(self, horizon: int) -> "Anchors":
        """Return the anchors with ``horizon`` future frames, endpoint included; these if they fit.

        FailedPrecondition: they have fewer, or states at their own last frame alone.
        """
        if horizon == self.horizon and self.labels.ndim == 1:
            return self
        if horizon > self.horizon or self.labels.ndim == 1:
            raise FailedPrecondition(
                f"the anchors have {self.horizon} future frames and cannot be used at {horizon}"
            )
        return PartialAnchors(self, self.count, horizon)


class PartialAnchors(Anchors):
    """The first anchors of a set, or all without their last future frames.

    With fewer frames, states and labels are those of the last that is left. ``change`` makes their
    frames those that someone may have recorded by mistake.
    """

    def __init__(
        self,
        whole: Anchors,
        count: int,
        horizon: int,
        change: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self._whole, self._steps, self._change = whole, whole.history + horizon, change
        self.history, self.windows, self.read_as = whole.history, whole.windows, whole.read_as
        arrays = whole.small_arrays(0, count)
        if count == whole.count:
            arrays = endpoints_at(arrays, horizon)
        for name, array in arrays.items():
            setattr(self, name, array)
        self.action_blocks = self.action_blocks[:, : self._steps - 1]
        self.forms = {
            name: (dtype, (self._steps, *shape[1:]) if _has_steps(name) else shape)
            for name, (dtype, shape) in whole.forms.items()
        }

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return frames, history first, or an array beside them, of anchors [start, stop)."""
        part = self._whole.read(name, start, stop)
        part = part[:, : self._steps] if _has_steps(name) else part
        return self._change(part) if self._change and name == FRAMES else part

    def digests(self, name: str) -> bytes:
        """Return the sha256 of each anchor's part of what :meth:`read` gives, joined."""
        if self._change or (_has_steps(name) and self.horizon < self._whole.horizon):
            return super().digests(name)
        return self._whole.digests(name)[: DIGEST_BYTES * self.count]


def _has_steps(name: str) -> bool:
    return name == FRAMES or has_steps(name)


@dataclass(frozen=True)
class AnchorBatch(Anchors):
    """Anchors whose frames are in memory, and ``arrays`` beside them, by name.

    InvalidArgument: the arrays do not fit each other, or hold a number that is not finite.
    """

    history: int  # the axes "_n" must agree too: __post_init__ says so by name
    frames: UInt8[np.ndarray, "_n steps height width 3"]
    action_blocks: Float32[np.ndarray, "_n blocks block_width"]
    endpoint_states: Float64[np.ndarray, "_n ... state_width"]
    labels: Int64[np.ndarray, "_n ..."]
    anchor_ids: Int64[np.ndarray, "_n"]
    trajectory_ids: Int64[np.ndarray, "_n"]
    arrays: Mapping[str, np.ndarray] = declared(default_factory=dict)

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
        futures = ((), (steps - self.history,))
        if future not in futures or self.endpoint_states.shape[1:-1] != future:
            raise InvalidArgument(
                "endpoint_states",
                f"has shape {self.endpoint_states.shape} beside labels {self.labels.shape}; give "
                f"both at the last future frame, or both at all {steps - self.history}",
            )
        for field in ("action_blocks", "endpoint_states", "anchor_ids", "trajectory_ids"):
            values = getattr(self, field)
            if not np.isfinite(values).all():
                raise InvalidArgument(field, "holds NaN or infinite numbers")
            if field.endswith("_ids") and (values < 0).any():
                raise InvalidArgument(field, "holds a negative number")
        self._check_arrays()

    def _check_arrays(self) -> None:
        for place, (name, array) in enumerate(self.arrays.items()):
            path = f"extras[{place}]"
            if len(array) != self.count:
                raise InvalidArgument(
                    f"{path}.values.shape", f"has {len(array)} anchors, but frames has {self.count}"
                )
            try:
                check_extra(name, array.dtype, array.shape[1:], self.history, self.frames.shape[1:])
            except InvalidArgument as error:
                raise error.below(path if error.field == "name" else f"{path}.values") from error
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InvalidArgument(f"{path}.values", "holds NaN or infinite numbers")
            if not name.startswith(DIRECTIONS):
                continue
            for anchor, probe in np.argwhere(~array.any(axis=(2, 3, 4, 5))):
                raise InvalidArgument(
                    f"{path}.values",
                    f"direction {probe} of anchor {anchor} is 0 throughout and points nowhere",
                )

    @property
    def large(self) -> dict[str, np.ndarray]:
        """Frames and ``arrays``, by name."""
        return {FRAMES: self.frames, **self.arrays}

    @cached_property
    def forms(self) -> dict[str, Form]:  # type: ignore[override]
        """Element type and shape for an anchor of frames and ``arrays``, by name."""
        return {name: (array.dtype, array.shape[1:]) for name, array in self.large.items()}

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return frames, history first, or an array beside them, of anchors [start, stop)."""
        return self.large[name][start:stop]
