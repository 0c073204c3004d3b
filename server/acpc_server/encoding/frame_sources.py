"""Frames to encode together: a request's own, views that it sends, and views drawn of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from acpc.contract import PerturbationSet
from torch import Tensor

from acpc_server.encoding.views import Draw, View, draw_views, unchanged
from acpc_server.engine import first_equal, to_device
from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument, below
from acpc_server.models import ModelCard, with_proprio
from acpc_server.numerics import input_size, to_model_input
from acpc_server.perturb import drawing_work


@dataclass(frozen=True, eq=False)
class FrameSource:
    """Frames that are encoded together: a history, a view of it, or a frame beside them.

    Attributes:
        pixels: Uint8, or float32 in [0, 1], (n, height, width, 3); of a view what it is drawn of.
        drawn: What the view is drawn of, and the view; None for frames as they are.
    """

    pixels: np.ndarray
    drawn: tuple[FrameSource, PerturbationSet, View] | None = None

    @property
    def base(self) -> FrameSource:
        """The frames as they are: what it is drawn of, or itself."""
        return self.drawn[0] if self.drawn else self

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(self.pixels)


@dataclass(frozen=True)
class EncodedHistories:
    """Projected latents, float32; in fp64 float64.

    Attributes:
        clean: The clean history, (h, dim).
        views: Its distinct views, (views, h, dim).
        extra: Frames encoded with them, (n, dim).
    """

    clean: Tensor
    views: Tensor
    extra: Tensor

    def with_slots(self, slots: Tensor) -> EncodedHistories:
        """Put in the proprioception (h + n, slot) of the frames."""
        own, beside = slots[: len(self.clean)], slots[len(self.clean) :]
        beside = beside.expand(len(self.extra), -1)  # views of a goal have the goal's
        return EncodedHistories(
            with_proprio(self.clean, own),
            with_proprio(self.views, own.expand(len(self.views), -1, -1)),
            with_proprio(self.extra, beside),
        )


@dataclass(frozen=True)
class HistorySources:
    """The frames that one request has encoded.

    Attributes:
        key: What decides their latents: checkpoint, arithmetic, frames and views.
        digest: Of the history, for the receipt.
        views_digest: Of the views, likewise.
        clean: The history.
        views: The distinct views; one that is the history itself is ``clean``.
        extra: Frames beside them.
        proprio: That of history and extra frames, (h + n, width), where they come with it.
    """

    key: str
    digest: hashlib._Hash
    views_digest: str
    clean: FrameSource
    views: list[FrameSource]
    extra: list[FrameSource]
    proprio: Tensor | None = None

    @cached_property
    def all(self) -> list[FrameSource]:
        """All sources, each once."""
        return list(dict.fromkeys([self.clean, *self.views, *self.extra]))

    @cached_property
    def frames(self) -> int:
        """Number of frames of all sources."""
        return sum(source.frames for source in self.all)

    def joined(self, found: Mapping[FrameSource, Tensor | AcpcError]) -> Tensor | AcpcError:
        """Join the latents of all sources, (h + views * h + n, dim); or return the first error."""
        latents = []
        for source in (self.clean, *self.views, *self.extra):
            if isinstance(x := found[source], AcpcError):
                return x
            latents.append(x)
        return torch.cat(latents)

    def split(self, joined: Tensor) -> EncodedHistories:
        """Take what :meth:`joined` gives apart."""
        h, n = self.clean.frames, sum(x.frames for x in self.extra)
        clean, views, extra = torch.split(joined, [h, h * len(self.views), n])
        return EncodedHistories(clean, views.reshape(len(self.views), h, -1), extra)


def drawn_views(
    base: FrameSource, plan: PerturbationSet, views: Iterable[View]
) -> list[FrameSource]:
    """Make a source of each view of a plan; one for equal views, ``base`` for what changes nothing.

    Equal views share it because rows of a batch round differently.
    """
    made: dict[tuple[str, int], FrameSource] = {}
    found = []
    for view in views:
        spec = plan.specs[view.spec_index]
        fresh = base if spec.changes_nothing else FrameSource(base.pixels, (base, plan, view))
        found.append(made.setdefault((spec.digest, view.draw), fresh))
    return found


def sent_views(base: FrameSource, views: np.ndarray) -> list[FrameSource]:
    """Make a source of each view that was sent, as :func:`drawn_views`."""
    as_sent = base.pixels
    if views.dtype != as_sent.dtype:  # float32 in [0, 1]
        as_sent = as_sent.astype(np.float32) / np.float32(255)
        as_sent, views = as_sent + np.float32(0), views + np.float32(0)  # -0 is 0
    made = {0: base}
    first = first_equal(np.concatenate([as_sent[None], views]))[1:].tolist()
    return [made.setdefault(row, FrameSource(view)) for row, view in zip(first, views, strict=True)]


def make_inputs(
    sources: Sequence[FrameSource],
    card: ModelCard,
    dtype: torch.dtype,
    device: torch.device,
    between: Callable[[], None],
) -> tuple[dict[FrameSource, Tensor | AcpcError], list[FrameSource], Tensor]:
    """Make model input of sources of one size, (n, 3, height, width) each, on the device.

    Returns an error in place of a view that cannot be drawn, the views that were, and which of
    these are what they are drawn of, bool on the device. Nothing waits for the device. Raises what
    ``between`` does, which is called between pieces of work.
    """
    inputs: dict[FrameSource, Tensor] = {}
    bases = list(dict.fromkeys(source.base for source in sources))
    for kind in (np.uint8, np.float32):
        if alike := [base for base in bases if base.pixels.dtype == kind]:
            # Joining copies: a message's bytes are read-only, and torch has no read-only tensors.
            pixels = torch.from_numpy(np.concatenate([base.pixels for base in alike]))
            (there,) = to_device(device, pixels.dtype, pixels)
            made = to_model_input(there, card.image_size, dtype)
            parts = torch.split(made, [base.frames for base in alike])
            inputs |= zip(alike, parts, strict=True)
    views: dict[FrameSource, Tensor | AcpcError] = {}
    for count in {source.frames for source in sources if source.drawn}:
        views |= _drawn([x for x in sources if x.drawn and x.frames == count], inputs, between)
    drawn = {view: x for view, x in views.items() if isinstance(x, Tensor)}
    same = unchanged(drawn.values(), [inputs[view.base] for view in drawn])
    return {**inputs, **views}, [*drawn], same


def drawing_of(sources: Sequence[FrameSource], card: ModelCard) -> float:
    """Price the drawing of sources of one size, as ``perturb.drawing_work``."""
    pixels = math.prod(input_size(sources[0].pixels.shape, card.image_size))
    drawn = ((x.frames, *x.drawn) for x in sources if x.drawn)
    views = ((plan.specs[view.spec_index], frames) for frames, _, plan, view in drawn)
    return drawing_work(views, pixels)


def _drawn(
    sources: Sequence[FrameSource],
    inputs: Mapping[FrameSource, Tensor],
    between: Callable[[], None],
) -> dict[FrameSource, Tensor | AcpcError]:
    """Draw views of as many frames each, together; one by one where one of them cannot be."""
    histories = [inputs[source.base] for source in sources]
    draws = [Draw(row, *source.drawn[1:]) for row, source in enumerate(sources) if source.drawn]
    try:
        with below("perturbations"):
            return dict(zip(sources, draw_views(histories, draws, between), strict=True))
    except (InvalidArgument, FailedPrecondition) as error:
        if len(sources) == 1:
            return {sources[0]: error}
        return {x: view for one in sources for x, view in _drawn([one], inputs, between).items()}
