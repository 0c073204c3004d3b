"""Anchors: the logged windows on which a checkpoint is measured."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from acpc.contract import (
    CUT_BYTES,
    DIRECTIONS,
    SMALL_ARRAYS,
    AnchorArray,
    AnchorArrays,
    anchors_digest,
    endpoints_at,
    extra_digest,
    frame_digests,
    has_steps,
)
from jaxtyping import Float32, Float64, Int64, UInt8

from acpc_server.errors import FailedPrecondition, InvalidArgument

FRAMES = "frames"  # the name by which frames are read, beside those of the ``extras``
DIGEST_BYTES = 32
Form: TypeAlias = tuple[np.dtype, tuple[int, ...]]


def cuts(one: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of anchors [start, stop), of ``one`` bytes each, that fill some megabytes."""
    step = max(1, CUT_BYTES // one)
    for first in range(start, stop, step):
        yield first, min(first + step, stop)


class Anchors:
    """n anchors: h history frames, H observed future frames, the actions between, the endpoint.

    The small arrays are whole; frames are read a range of anchors at a time, so that a set may be
    larger than memory. They and the arrays beside them have ``forms``, for an anchor, by name: of
    frames (h + H, height, width, 3). What is None or empty is not known.
    """

    windows: int | None = None  # that the anchors are a simple random sample of
    # How their dataset was read, for receipts: how actions are normalised, and which episodes.
    read_as: Mapping[str, object] = MappingProxyType({})
    # Blocks that leave all frames of the window that each anchor was drawn from (h + F of them).
    window_blocks: Float32[np.ndarray, "n window block_width"] | None = None
    forms: Mapping[str, Form]
    history: int  # frames h; the other frames are the future
    action_blocks: Float32[np.ndarray, "n blocks block_width"]  # normalised; block k leaves frame k
    # Standardised states, and labels, at the last future frame, or at every one.
    endpoint_states: Float64[np.ndarray, "n *future state_width"]
    labels: Int64[np.ndarray, "n *future"]
    anchor_ids: Int64[np.ndarray, "n"]  # they key the draws; not negative
    trajectory_ids: Int64[np.ndarray, "n"]  # that each anchor was cut from; not negative

    def __init__(self, arrays: AnchorArrays) -> None:
        self._large = arrays.large
        forms = {name: (x.dtype, tuple(x.shape[1:])) for name, x in self._large.items()}
        self._take(arrays.history, arrays.small, forms)

    def _take(
        self, history: int, small: Mapping[str, np.ndarray], forms: Mapping[str, Form]
    ) -> None:
        self.history, self.forms = history, forms
        for name in SMALL_ARRAYS:
            setattr(self, name, small[name])

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

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return frames, history first, or an array beside them, of anchors [start, stop)."""
        found: np.ndarray = self._large[name][start:stop]
        return found

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
        self.windows, self.read_as = whole.windows, whole.read_as
        arrays = whole.small_arrays(0, count)
        if count == whole.count:
            arrays = endpoints_at(arrays, horizon)
        arrays["action_blocks"] = arrays["action_blocks"][:, : self._steps - 1]
        forms = {
            name: (dtype, (self._steps, *shape[1:]) if has_steps(name) else shape)
            for name, (dtype, shape) in whole.forms.items()
        }
        self._take(whole.history, arrays, forms)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return frames, history first, or an array beside them, of anchors [start, stop)."""
        part = self._whole.read(name, start, stop)
        part = part[:, : self._steps] if has_steps(name) else part
        return self._change(part) if self._change and name == FRAMES else part

    def digests(self, name: str) -> bytes:
        """Return the sha256 of each anchor's part of what :meth:`read` gives, joined."""
        if self._change or (has_steps(name) and self.horizon < self._whole.horizon):
            return super().digests(name)
        return self._whole.digests(name)[: DIGEST_BYTES * self.count]


def check_numbers(anchors: AnchorArrays, path: Callable[[str], str] = str) -> None:
    """Raise InvalidArgument, the ``path`` of an array in memory, for what no anchor may hold.

    That is a number that is not finite, a negative identity, and a direction that is 0 throughout.
    """
    for name, array in anchors.arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InvalidArgument(path(name), "holds NaN or infinite numbers")
        if name.endswith("_ids") and (array < 0).any():
            raise InvalidArgument(path(name), "holds a negative number")
        if name.startswith(DIRECTIONS):
            for anchor, probe in np.argwhere(~array.any(axis=(2, 3, 4, 5))):
                raise InvalidArgument(
                    path(name),
                    f"direction {probe} of anchor {anchor} is 0 throughout and points nowhere",
                )
