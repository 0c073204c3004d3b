"""Encodes a clean history and its other views, with which every interactive answer starts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from acpc.contract import NumericMode, PerturbationSet, Views
from torch import Tensor

from acpc_server.encoding.frame_sources import FrameSource, FrameSources
from acpc_server.encoding.views import View, distinct_views
from acpc_server.engine import DeviceEngine, frames_per_call, latent_dtype, to_host
from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument
from acpc_server.models import FrozenWorldModel, ModelCard, TakesProprio, with_proprio
from acpc_server.numerics import input_size
from acpc_server.scheduling import Priority, RequestContext

# Latents by key, or why there are none.
_Found: TypeAlias = "dict[bytes, Tensor | AcpcError]"
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

    def with_slots(self, slots: Tensor) -> EncodedHistories:
        """These with the proprioception (h + n, slot) of their frames."""
        own, beside = slots[: len(self.clean)], slots[len(self.clean) :]
        return EncodedHistories(
            with_proprio(self.clean, own),
            with_proprio(self.views, own.expand(len(self.views), -1, -1)),
            with_proprio(self.extra, beside),
        )


@dataclass(frozen=True)
class HistorySources:
    """What one request has encoded.

    Attributes:
        clean: The frames of its history.
        views: The distinct views; of one that is the history itself there are none.
        extra: Frames beside them.
        proprio: Of the history's frames and of those beside them, (h + n, width), where they come
            with it.
    """

    clean: list[FrameSource]
    views: list[list[FrameSource]]
    extra: list[FrameSource]
    proprio: Tensor | None = None

    @property
    def all(self) -> list[FrameSource]:
        """All that there is to encode."""
        return [*self.clean, *itertools.chain(*self.views), *self.extra]

    @cached_property
    def frames(self) -> int:
        """How many frames that is."""
        return sum(source.count for source in self.all)

    def held(self, latents: EncodedHistories) -> dict[bytes, Tensor]:
        """What was encoded, by the keys of its sources."""
        rows = zip(self.views, latents.views, strict=True)
        frames = zip(self.clean, torch.split(latents.clean, 1), strict=True)
        extra = zip(self.extra, latents.extra[:, None], strict=True)  # split gives none a piece
        found = {source.key: one for source, one in itertools.chain(frames, extra)}
        return found | {source.key: row[source.rows] for view, row in rows for source in view}


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
        proprio: Sequence[np.ndarray | None] = (),
    ) -> HistorySources:
        """What a request has encoded: each view once, however often it is asked for.

        ``history``, uint8 (h, height, width, 3), has passed :func:`check_history_frames`; ``extra``
        are frames (n, height, width, 3) of the same size; ``proprio`` is that of the history's
        frames and of these, where they come with it.

        Raises:
            InvalidArgument: Too many frames.
        """
        drawn = isinstance(views, PerturbationSet)
        count = len(distinct_views(views) if isinstance(views, PerturbationSet) else views)
        field = "perturbations.draws" if drawn else "explicit_views.shape"
        beside = 0 if extra is None else len(extra)
        self._check_frames(count, len(history), beside, field)
        frames, what = (
            (1 + count) * len(history) + beside,
            "the history, its views and what is beside",
        )
        check_latents(self._engine, model, mode, frames, field, what)
        sources = FrameSources(model.card, mode, self._engine.device)
        clean = sources.frames(history)
        given = [np.atleast_2d(rows) for rows in proprio if rows is not None]
        return HistorySources(
            clean,
            sources.views(clean, views),
            [] if extra is None else sources.frames(extra),
            torch.from_numpy(np.concatenate(given)) if given else None,
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
        encoded = [_encoded(sources, found) for sources in asked]
        return self._with_proprio(model, encoded, asked, context, mode)

    def _with_proprio(
        self,
        model: FrozenWorldModel,
        encoded: list[EncodedHistories | AcpcError],
        asked: Sequence[HistorySources],
        context: RequestContext,
        mode: NumericMode,
    ) -> list[EncodedHistories | AcpcError]:
        """The latents with their frames' proprioception; views have their history's."""
        rows = [sources.proprio for sources in asked if sources.proprio is not None]
        if not rows:
            return encoded
        slots = self._engine.embed_proprio(model, torch.cat(rows), context, mode)
        each = iter(torch.split(slots, [len(x) for x in rows]))
        return [
            found if isinstance(found, AcpcError) else found.with_slots(own)
            for found, own in zip(encoded, each, strict=True)
        ]

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
        maker = FrameSources(model.card, mode, self._engine.device)
        sources = maker.draws(maker.frames(history), views, which)
        found = self._latents(model, [*itertools.chain(*sources)], context, mode)
        drawn = torch.stack([_view_of(view, found, clean) for view in sources])
        if isinstance(model, TakesProprio) and (slot := model.proprio_slot):
            drawn = with_proprio(drawn, clean[:, -slot:].expand(len(drawn), -1, -1))
        return drawn

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
        maker = FrameSources(model.card, mode, self._engine.device)
        for group in self._grouped(model.card, missing.values(), context):
            made, same = maker.make(group)
            frames = [x for x in made if isinstance(x, Tensor)]
            encoded = torch.empty(0, model.card.latent_dim)
            if frames:
                encoded = self._engine.encode(model, torch.cat(frames), context, mode)
            parts = iter(torch.split(encoded, [*map(len, frames)]))
            alike = to_host(same).tolist()  # after the encoder: nothing more waits
            fresh: dict[bytes, Tensor] = {}
            for source, x, is_history in zip(group, made, alike, strict=True):
                if isinstance(x, AcpcError):
                    found[source.key] = x
                else:
                    latents = next(parts)
                    fresh[source.key] = latents[:0] if source.drawn and is_history else latents
            cache.put(fresh)
            found |= fresh
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
        views = torch.stack([_view_of(view, found, clean) for view in asked.views])
        extra = torch.cat([clean[:0], *(_latents_of(source, found) for source in asked.extra)])
    except AcpcError as error:
        return error
    return EncodedHistories(clean, views, extra)


def _view_of(view: Sequence[FrameSource], found: _Found, clean: Tensor) -> Tensor:
    """Latents of a view, the clean history's (h, dim) where it is the history itself."""
    if not view:
        return clean
    parts = [(source, _latents_of(source, found)) for source in view]
    return torch.cat([x if len(x) else clean[source.rows] for source, x in parts])


def _latents_of(source: FrameSource, found: _Found) -> Tensor:
    """Latents of a source, none where a view turned out to be what it is drawn of."""
    latents = found[source.key]
    if isinstance(latents, AcpcError):
        raise source.told(latents)
    return latents


def check_latents(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    mode: NumericMode,
    count: int,
    field: str,
    what: str,
) -> None:
    """Reject, with InvalidArgument, more latents than may be held at a time.

    ``what`` needs ``count`` of them, and fewer with a smaller ``field``.
    """
    width, size = model.card.latent_dim, latent_dtype(mode).itemsize
    if (needed := count * width * size) > engine.max_latents:
        raise InvalidArgument(
            field,
            f"{what} need {count} latents of {width} numbers, {needed} bytes, over the limit of "
            f"{engine.max_latents} (--max-latents-mib); ask for fewer",
            reason="TOO_MANY_LATENTS",
        )


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
