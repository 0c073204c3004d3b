"""Anchors: the logged windows on which a checkpoint is measured."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as declared
from functools import cached_property
from types import MappingProxyType

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

DIGEST_BYTES = 32
CUT_BYTES = 2**23
"""Frames read at a time, 8 MiB, where all are read."""


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
        arrays: The ``extras`` that are in memory, by name.
        windows: Windows that the anchors are a simple random sample of; None where not known.
        read_as: What a receipt says of how their dataset was read: how actions are normalised, and
            which episodes; empty where not known.
    """

    windows: int | None = None
    read_as: Mapping[str, object] = MappingProxyType({})
    arrays: Mapping[str, np.ndarray] = MappingProxyType({})
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
    def held_bytes(self) -> int:
        """Bytes in memory, those of frames that may yet be read among them."""
        beside = [] if self.window_blocks is None else [self.window_blocks]
        held = (*self.small_arrays().values(), *self.arrays.values(), *beside)
        return sum(array.nbytes for array in held)

    @cached_property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        raise NotImplementedError

    @cached_property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``; by default reads every frame once."""
        return self.content_digest()

    @abstractmethod
    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """Return RGB frames of anchors [start, stop), history first."""

    def action_variants(self, count: int) -> dict[str, Float32[np.ndarray, "m blocks width"]]:
        """Return blocks of the first ``count`` with a usual mistake undone, by its name.

        Of anchors whose dataset is not at hand only the other sign.
        """
        return {"negated_actions": -self.action_blocks[:count]}

    @cached_property
    def extras(self) -> tuple[AnchorArray, ...]:
        """The arrays beside these, by name; few anchors have any."""
        return tuple(
            self._described(name, array.dtype, array.shape[1:])
            for name, array in sorted(self.arrays.items())
        )

    def read_extra(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return anchors [start, stop) of one of the ``extras``."""
        return self.arrays[name][start:stop]

    def extra_digests(self, name: str) -> bytes:
        """Return the sha256 of each anchor's part of one of the ``extras``, joined."""
        cuts = (self.read_extra(name, start, stop) for start, stop in self.cuts())
        return b"".join(one for part in cuts for one in frame_digests(part))

    def small_arrays(self, start: int = 0, stop: int | None = None) -> dict[str, np.ndarray]:
        """Return every array but the frames, of anchors [start, stop), by name; all by default."""
        return {name: getattr(self, name)[start:stop] for name in SMALL_ARRAYS}

    def cuts(self, start: int = 0) -> Iterator[tuple[int, int]]:
        """Yield ranges of anchors from ``start`` on whose frames fill some megabytes."""
        one = (self.history + self.horizon) * 3 * int(np.prod(self.frame_size))
        step = max(1, CUT_BYTES // one)
        for first in range(start, self.count, step):
            yield first, min(first + step, self.count)

    def content_digest(self) -> str:
        """Return the sha256 of the content, as ``anchors_digest``; reads every frame."""
        cuts = (self.read_frames(start, stop) for start, stop in self.cuts())
        of_frames = (one for frames in cuts for one in frame_digests(frames))
        extras = {array.name: array.digest for array in self.extras}
        return anchors_digest(self.history, self.frame_size, self.small_arrays(), of_frames, extras)

    def _described(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> AnchorArray:
        """Describe one of the ``extras`` as it is here; ``shape`` is that of an anchor."""
        digests = self.extra_digests(name)
        digest = extra_digest(name, dtype, (self.count, *shape), [digests])
        return AnchorArray(name, dtype.name, shape, digest)

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

    With fewer frames, states and labels are those of the last that is left.
    """

    def __init__(self, whole: Anchors, count: int, horizon: int) -> None:
        self.history, self.frame_size = whole.history, whole.frame_size
        self.windows, self.read_as = whole.windows, whole.read_as
        arrays = whole.small_arrays(0, count)
        if count == whole.count:
            arrays = endpoints_at(arrays, horizon)
        for name, array in arrays.items():
            setattr(self, name, array)
        self._whole = whole
        self._steps = whole.history + horizon
        self.action_blocks = self.action_blocks[:, : self._steps - 1]

    @cached_property
    def digest(self) -> str:
        """Sha256 of the content, as ``anchors_digest``; reads every frame once if some go."""
        whole = self._whole
        same = (self.count, self.horizon) == (whole.count, whole.horizon)
        return whole.digest if same else self.content_digest()

    @property
    def held_bytes(self) -> int:
        """Those of the whole set."""
        return self._whole.held_bytes

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """Return RGB frames of anchors [start, stop), history first."""
        return self._whole.read_frames(start, stop)[:, : self._steps]

    @cached_property
    def extras(self) -> tuple[AnchorArray, ...]:
        """The arrays beside these, by name, without what belongs to frames that went."""
        return tuple(
            self._described(
                x.name,
                np.dtype(x.dtype),
                (self._steps, *x.shape[1:]) if has_steps(x.name) else x.shape,
            )
            for x in self._whole.extras
        )

    def read_extra(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return anchors [start, stop) of one of the ``extras``."""
        part = self._whole.read_extra(name, start, stop)
        return part[:, : self._steps] if has_steps(name) else part

    def extra_digests(self, name: str) -> bytes:
        """Return the sha256 of each anchor's part of one of the ``extras``, joined."""
        if has_steps(name) and self.horizon < self._whole.horizon:
            return super().extra_digests(name)
        return self._whole.extra_digests(name)[: DIGEST_BYTES * self.count]


class ChangedAnchors(PartialAnchors):
    """The first anchors of a set, whose frames someone may have recorded otherwise."""

    def __init__(
        self, whole: Anchors, count: int, change: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        super().__init__(whole, min(count, whole.count), whole.horizon)
        self._change = change

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """Return the changed frames of anchors [start, stop), history first."""
        return self._change(super().read_frames(start, stop))


@dataclass(frozen=True)
class AnchorBatch(Anchors):
    """Anchors whose frames are in memory, and ``arrays`` that ``extras`` describes, by name.

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

    @cached_property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        return self.frames.shape[2], self.frames.shape[3]

    def read_frames(self, start: int, stop: int) -> UInt8[np.ndarray, "m steps height width 3"]:
        """Return RGB frames of anchors [start, stop), history first."""
        return self.frames[start:stop]

    @property
    def large(self) -> dict[str, np.ndarray]:
        """Frames and ``arrays``, by name."""
        return {"frames": self.frames, **self.arrays}
