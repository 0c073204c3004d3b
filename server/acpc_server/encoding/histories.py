"""Encodes a clean history and its other views, with which every interactive answer starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from acpc.contract import NumericMode, PerturbationSet, Views
from torch import Tensor

from acpc_server.encoding.views import Draw, View, distinct_views, draw_views, unchanged
from acpc_server.engine import DeviceEngine, frames_per_call, latent_dtype
from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument
from acpc_server.models import FrozenWorldModel, ModelCard
from acpc_server.numerics import input_size, to_model_input
from acpc_server.scheduling import Priority, RequestContext

KEY_BYTES = 16
# Latents by key, or why there are none.
_Found: TypeAlias = "dict[bytes, Tensor | AcpcError]"


@dataclass(frozen=True)
class FrameSource:
    """Frames that are encoded together: one of a request's, a view it sends, or one drawn of them.

    Attributes:
        key: Equal for equal latents: covers checkpoint, arithmetic and content.
        pixels: The request's frames, uint8 (m, height, width, 3).
        rows: Which of them.
        drawn: Which view is drawn of them; None for the frames as they are.
    """

    key: bytes
    pixels: np.ndarray
    rows: slice
    drawn: tuple[PerturbationSet, View] | None = None

    @property
    def count(self) -> int:
        """How many frames."""
        return len(self.pixels[self.rows])


class FrameSources:
    """Sources for one checkpoint in one arithmetic."""

    def __init__(self, card: ModelCard, mode: NumericMode) -> None:
        self._size = card.image_size
        self._dtype = latent_dtype(mode)
        self._prefix = f"{card.digest}:{mode!s}:".encode()

    def frames(self, frames: np.ndarray) -> list[FrameSource]:
        """A source per frame of uint8 (n, height, width, 3)."""
        return [
            FrameSource(self._key(b"frame", frame), frames, slice(row, row + 1))
            for row, frame in enumerate(frames)
        ]

    def views(self, history: np.ndarray, views: Views) -> list[FrameSource | None]:
        """A source per distinct view of a history, uint8 (h, height, width, 3).

        None stands for the history itself: its latents must be the same bits, or rounding would
        make an unchanged view look changed.
        """
        if not isinstance(views, PerturbationSet):
            return [
                None
                if np.array_equal(view, history)
                else FrameSource(self._key(b"view", view), view, slice(None))
                for view in views
            ]
        return self.draws(history, views, distinct_views(views))

    def draws(
        self, history: np.ndarray, views: PerturbationSet, which: Sequence[View]
    ) -> list[FrameSource | None]:
        """A source per view of ``which``, as :meth:`views`; a draw may be any of the spec's."""
        content = self._key(b"history", history)
        specs = [spec.digest for spec in views.specs]

        def key(view: View) -> bytes:
            text = f"{specs[view.spec_index]}:{views.seed}:{views.anchor}:{view.draw}".encode()
            return hashlib.blake2b(content + text, digest_size=KEY_BYTES).digest()

        return [
            None
            if views.specs[view.spec_index].changes_nothing
            else FrameSource(key(view), history, slice(None), (views, view))
            for view in which
        ]

    def make(self, sources: Sequence[FrameSource]) -> list[Tensor | AcpcError]:
        """The frames of sources of one size as model input, (n, 3, height, width) each.

        None (n = 0) of a view that turns out to be the history itself; an error where a view cannot
        be drawn.
        """
        arrays = {id(source.pixels): source.pixels for source in sources}
        # Joining copies: a message's bytes are read-only, and torch has no read-only tensors.
        pixels = torch.from_numpy(np.concatenate([*arrays.values()]))
        parts = torch.split(
            to_model_input(pixels, self._size, self._dtype), [len(x) for x in arrays.values()]
        )
        inputs = dict(zip(arrays, parts, strict=True))
        drawn = iter(_drawn([source for source in sources if source.drawn], inputs))
        return [
            next(drawn) if source.drawn else inputs[id(source.pixels)][source.rows]
            for source in sources
        ]

    def _key(self, role: bytes, frames: np.ndarray) -> bytes:
        content = hashlib.blake2b(self._prefix + role, digest_size=KEY_BYTES)
        content.update(str(frames.shape).encode())
        content.update(np.ascontiguousarray(frames).data)
        return content.digest()


def _drawn(
    sources: Sequence[FrameSource], inputs: Mapping[int, Tensor]
) -> list[Tensor | AcpcError]:
    """Views of histories of one length, together; one by one where one of them cannot be drawn."""
    if not sources:
        return []
    places = {key: place for place, key in enumerate({id(source.pixels) for source in sources})}
    histories = torch.stack([inputs[key] for key in places])
    draws = [Draw(places[id(s.pixels)], *s.drawn) for s in sources if s.drawn]
    try:
        views = draw_views(histories, draws)
    except AcpcError as error:
        if len(sources) > 1:
            return [found for source in sources for found in _drawn([source], inputs)]
        return [error.below("perturbations") if isinstance(error, InvalidArgument) else error]
    same = unchanged(views, histories, draws).tolist()
    return [view[:0] if is_same else view for view, is_same in zip(views, same, strict=True)]


# The shorter side becomes the model's image size, so a thin frame would become a huge one.
MAX_ASPECT = 8
MAX_HORIZON = 1024


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


@dataclass(frozen=True)
class HistorySources:
    """What one request has encoded.

    Attributes:
        clean: The frames of its history.
        views: The distinct views; None for one that is the history itself.
        extra: Frames beside them.
    """

    clean: list[FrameSource]
    views: list[FrameSource | None]
    extra: list[FrameSource]

    @property
    def all(self) -> list[FrameSource]:
        """All that there is to encode."""
        return [*self.clean, *filter(None, self.views), *self.extra]

    @cached_property
    def frames(self) -> int:
        """How many frames that is."""
        return sum(source.count for source in self.all)


class HistoryEncoder:
    """Encodes a history, its views and what goes with them in one go, of one request or of many.

    Args:
        max_frames: Frames one request may have encoded beside its history.
    """

    def __init__(self, engine: DeviceEngine, max_frames: int) -> None:
        self._engine = engine
        self._max_frames = max_frames

    def sources(
        self,
        model: FrozenWorldModel,
        history: np.ndarray,
        views: Views,
        extra: np.ndarray | None,
        mode: NumericMode,
    ) -> HistorySources:
        """What a request has encoded: each view once, however often it is asked for.

        ``history``, uint8 (h, height, width, 3), has passed :func:`check_history_frames`; ``extra``
        are frames (n, height, width, 3) of the same size.

        Raises:
            InvalidArgument: Too many frames.
        """
        drawn = isinstance(views, PerturbationSet)
        count = len(distinct_views(views) if isinstance(views, PerturbationSet) else views)
        field = "perturbations.draws" if drawn else "explicit_views.shape"
        self._check_frames(count, len(history), 0 if extra is None else len(extra), field)
        sources = FrameSources(model.card, mode)
        return HistorySources(
            sources.frames(history),
            sources.views(history, views),
            [] if extra is None else sources.frames(extra),
        )

    def frames_per_call(self, model: FrozenWorldModel, pixels: np.ndarray) -> int:
        """Frames of a request, as large as ``pixels`` (n, height, width, 3), that a call takes."""
        size = input_size(pixels.shape, model.card.image_size)
        return frames_per_call(self._engine.device.type, Priority.INTERACTIVE, *size)

    def encode(
        self,
        model: FrozenWorldModel,
        asked: Sequence[HistorySources],
        context: RequestContext,
        mode: NumericMode,
        held: Mapping[bytes, Tensor] | None = None,
    ) -> list[EncodedHistories | AcpcError]:
        """Latents of all that is asked for, frames of one size; an error is that request's alone.

        It is InvalidArgument for a perturbation that does not fit the frames, FailedPrecondition
        for a plug-in perturbation that breaks its promise. ``held`` are latents by the keys of
        their sources, which are not encoded again.

        Raises:
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        found: _Found = {**(held or {})}
        wanted = [s for sources in asked for s in sources.all if s.key not in found]
        found |= self._latents(model, wanted, context, mode)
        return [_encoded(sources, found) for sources in asked]

    def encode_draws(
        self,
        model: FrozenWorldModel,
        history: np.ndarray,
        clean: Tensor,
        views: PerturbationSet,
        which: Sequence[View],
        context: RequestContext,
        mode: NumericMode,
    ) -> Tensor:
        """Latents (views, h, dim) of some views of a history that has latents ``clean`` (h, dim).

        ``which`` may be draws beyond those that ``views`` asks for.

        Raises:
            AcpcError: As :meth:`encode` answers or raises.
        """
        sources = FrameSources(model.card, mode).draws(history, views, which)
        found = self._latents(model, [*filter(None, sources)], context, mode)
        return torch.stack([_latents_of(source, found, clean) for source in sources])

    def _latents(
        self,
        model: FrozenWorldModel,
        sources: Sequence[FrameSource],
        context: RequestContext,
        mode: NumericMode,
    ) -> _Found:
        """Latents of every source; only those not seen lately are made and encoded."""
        cache = self._engine.latents
        found: _Found = {**cache.get([source.key for source in sources])}
        missing = {source.key: source for source in sources if source.key not in found}
        maker = FrameSources(model.card, mode)
        for group in self._grouped(model.card, missing.values(), context):
            made = maker.make(group)
            frames = [x for x in made if isinstance(x, Tensor)]
            encoded = torch.empty(0, model.card.latent_dim)
            if any(map(len, frames)):
                encoded = self._engine.encode(model, torch.cat(frames), context, mode)
            parts = iter(torch.split(encoded, [*map(len, frames)]))
            fresh = {
                source.key: next(parts)
                for source, x in zip(group, made, strict=True)
                if isinstance(x, Tensor)
            }
            cache.put(fresh)
            found |= fresh
            found |= {
                s.key: x for s, x in zip(group, made, strict=True) if not isinstance(x, Tensor)
            }
        return found

    def _grouped(
        self, card: ModelCard, sources: Iterable[FrameSource], context: RequestContext
    ) -> Iterator[list[FrameSource]]:
        """Sources a device call at a time, so that a request never holds the frames of all."""
        group: list[FrameSource] = []
        count = 0
        for source in sources:
            group.append(source)
            count += source.count
            size = input_size(source.pixels.shape, card.image_size)
            if count >= frames_per_call(self._engine.device.type, context.priority, *size):
                yield group
                group, count = [], 0
        if group:
            yield group

    def _check_frames(self, views: int, frames: int, extra: int, field: str) -> None:
        total = views * frames + extra
        if total > self._max_frames:
            raise InvalidArgument(
                "observed_future.shape" if extra > views * frames else field,
                f"{views} views of {frames} frames and {extra} frames beside them are {total} "
                f"frames, over the limit of {self._max_frames}; split the request",
                reason="TOO_MANY_FRAMES",
            )


def _encoded(asked: HistorySources, found: _Found) -> EncodedHistories | AcpcError:
    try:
        clean = torch.cat([_latents_of(source, found) for source in asked.clean])  # (h, dim)
        views = torch.stack([_latents_of(source, found, clean) for source in asked.views])
        extra = torch.cat([clean[:0], *(_latents_of(source, found) for source in asked.extra)])
    except AcpcError as error:
        return error
    return EncodedHistories(clean, views, extra)


def _latents_of(source: FrameSource | None, found: _Found, clean: Tensor | None = None) -> Tensor:
    """Latents of a source, the clean history's where a view is the history itself."""
    if source is None:
        assert clean is not None  # noqa: S101 - only a view can be
        return clean
    latents = found[source.key]
    if isinstance(latents, AcpcError):
        raise latents
    return latents if len(latents) or clean is None else clean


def check_history_frames(card: ModelCard, history: np.ndarray) -> None:
    """Reject, with InvalidArgument, frames too thin or more of them than the model sees."""
    height, width = history.shape[1:3]
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise InvalidArgument(
            "history.shape",
            f"frames of {height} x {width} pixels; one side may be at most {MAX_ASPECT} times "
            "the other",
        )
    if len(history) > card.history:
        raise InvalidArgument(
            "history.shape",
            f"{len(history)} frames, but the checkpoint sees at most {card.history}",
        )


def check_block_width(card: ModelCard, width: int, field: str) -> None:
    """Reject, with InvalidArgument, action blocks of another width than the checkpoint's."""
    if width != card.action_block_dim:
        raise InvalidArgument(
            f"{field}.shape",
            f"block width {width}, but the checkpoint expects frameskip x action_dim = "
            f"{card.action_block_dim}",
        )


def check_predictions(*latents: Tensor) -> None:
    """Raise FailedPrecondition when the checkpoint gave NaN or infinity."""
    if not all(bool(torch.isfinite(values).all()) for values in latents if values.numel()):
        raise predictions_not_finite()


def predictions_not_finite() -> FailedPrecondition:
    """The error of a checkpoint that gave NaN or infinity."""
    return FailedPrecondition(
        "the checkpoint's predictions are not finite for this history and these actions; check "
        "that the action blocks are normalised as in training",
        reason="PREDICTION_NOT_FINITE",
    )
