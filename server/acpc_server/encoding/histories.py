"""Encodes a clean history and its other views, with which every interactive answer starts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from acpc.contract import NumericMode, PerturbationSet, Views, applied_to
from torch import Tensor
from torch.linalg import vector_norm

from acpc_server.encoding.frame_sources import (
    EncodedHistories,
    FrameSource,
    HistorySources,
    drawing_of,
    drawn_views,
    make_inputs,
    sent_views,
)
from acpc_server.encoding.receipt import arrays_digest
from acpc_server.encoding.views import distinct_views, views_digest
from acpc_server.engine import DeviceClient, frames_per_call, latent_dtype, to_host
from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument
from acpc_server.models import FrozenWorldModel, ModelCard
from acpc_server.numerics import input_size
from acpc_server.perturb import PIECE_WORK, check_drawing
from acpc_server.scheduling import Priority, RequestContext

# The shorter side becomes the model's image size, so a thin frame would become a huge one.
MAX_ASPECT = 8
# Float64 holds the squares of what is smaller, times the largest weights of an objective.
LARGEST = 2.0**250


class HistoryEncoder:
    """Encodes histories, views and extra frames together, of one request or of many.

    A request may have ``max_frames`` encoded beside its history.
    """

    def __init__(self, engine: DeviceClient, max_frames: int) -> None:
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
        """List what a request has encoded, each view once.

        ``history``, uint8 (h, height, width, 3), has passed :func:`check_history_frames`; ``extra``
        are frames (n, height, width, 3) of the same size, the goal's alone where views change it;
        its distinct views follow it then. ``proprio`` is that of both, if any.
        Raises InvalidArgument: Too many frames.
        """
        applied, distinct = applied_to(views), distinct_views(views)
        self._check_size(model, history, views, extra, mode, len(distinct))
        clean = FrameSource(history)
        frames_beside = [] if extra is None else [FrameSource(frame[None]) for frame in extra]
        if isinstance(views, PerturbationSet):
            changed = drawn_views(clean, views, distinct)
            if applied.goal:  # drawn independently
                goals = replace(views, seed=views.seed ^ 2**63)
                frames_beside += drawn_views(frames_beside[0], goals, distinct)
        else:
            changed = sent_views(clean, views)
        given = [np.atleast_2d(rows) for rows in proprio if rows is not None]
        digest, content = arrays_digest([("history", history)]), views_digest(views)
        frames = arrays_digest([("extra", extra)], digest).hexdigest()
        return HistorySources(
            f"{model.card.digest}:{mode}:{applied}:{content}:{frames}",
            digest,
            content,
            clean,
            changed if applied.history else [clean] * len(distinct),
            frames_beside,
            torch.from_numpy(np.concatenate(given)) if given else None,
        )

    def _check_size(
        self,
        model: FrozenWorldModel,
        history: np.ndarray,
        views: Views,
        extra: np.ndarray | None,
        mode: NumericMode,
        count: int,
    ) -> None:
        """Raise InvalidArgument where ``count`` views, and what is beside, are too much."""
        applied = applied_to(views)
        each = len(history) * applied.history + applied.goal  # frames of a view
        if isinstance(views, PerturbationSet):
            field = "perturbations.draws"
            pixels = math.prod(input_size(history.shape, model.card.image_size))
            largest = len(history) if applied.history else 1
            check_drawing(largest, pixels, "perturbations.specs[0]")
        else:
            field = "explicit_views.shape"
        beside, drawn = 0 if extra is None else len(extra), count * each
        if drawn + beside > self._max_frames:
            raise InvalidArgument(
                "observed_future.shape" if beside > drawn else field,
                f"{count} views of {each} frames and {beside} frames beside them are "
                f"{drawn + beside} frames, over the limit of {self._max_frames}; split the request",
                reason="TOO_MANY_FRAMES",
            )
        what = "the history, its views and what is beside"
        check_latents(self._engine, model, mode, len(history) + drawn + beside, field, what)

    def frames_per_call(self, model: FrozenWorldModel, pixels: np.ndarray) -> int:
        """Return how many frames as large as ``pixels`` (n, height, width, 3) a call takes."""
        size = input_size(pixels.shape, model.card.image_size)
        return frames_per_call(self._engine.device.type, Priority.INTERACTIVE, model.card, *size)

    def work(self, model: FrozenWorldModel, sources: HistorySources) -> tuple[float, float]:
        """Price sources in device calls, pieces of drawing included; and the work of drawing."""
        calls = sources.frames / self.frames_per_call(model, sources.clean.pixels)
        drawing = drawing_of(sources.all, model.card)
        return calls + drawing / PIECE_WORK, drawing

    def encode(
        self,
        model: FrozenWorldModel,
        asked: Sequence[HistorySources],
        context: RequestContext,
        mode: NumericMode,
        calls: str = "",
    ) -> list[EncodedHistories | AcpcError]:
        """Encode requests with frames of one size; an error in the answer is one request's alone.

        It is InvalidArgument for a perturbation that does not fit the frames, FailedPrecondition
        for a plug-in perturbation that breaks its promise. Of what is kept it takes what calls of
        the same kind gave.
        Raises Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        cache, keyed = self._engine.latents, [(f"{calls}:{x.key}", x) for x in asked]
        kept = {key: cache.get(key) for key, _ in keyed}
        fresh = {key: sources for key, sources in keyed if kept[key] is None}
        joined: dict[str, Any] = {**kept}  # latents, or an error
        found = self._fresh(model, [x for one in fresh.values() for x in one.all], context, mode)
        for key, sources in fresh.items():
            if isinstance(latents := sources.joined(found), Tensor):
                cache.put(key, latents)
            joined[key] = latents
        encoded = [
            x if isinstance(x := joined[key], AcpcError) else sources.split(x)
            for key, sources in keyed
        ]
        rows = [sources.proprio for sources in asked if sources.proprio is not None]
        if not rows:
            return encoded
        slots = self._engine.embed_proprio(model, torch.cat(rows), context, mode)
        each = iter(torch.split(slots, [len(x) for x in rows]))
        return [
            found if isinstance(found, AcpcError) else found.with_slots(own)
            for found, own in zip(encoded, each, strict=True)
        ]

    def encode_alone(
        self,
        model: FrozenWorldModel,
        sources: HistorySources,
        context: RequestContext,
        mode: NumericMode,
    ) -> EncodedHistories:
        """Encode a request whose answer's bits may not depend on others: it shares no device call.

        Raises as :meth:`encode`, and what that returns.
        """
        (encoded,) = self.encode(model, [sources], context, mode, self._calls(context))
        if isinstance(encoded, AcpcError):
            raise encoded
        return encoded

    def recall(self, sources: HistorySources, context: RequestContext) -> Tensor | None:
        """Return what :meth:`HistorySources.joined` gave of a request that was encoded alone."""
        return self._engine.latents.get(f"{self._calls(context)}:{sources.key}")

    def keep(self, sources: HistorySources, context: RequestContext, joined: Tensor) -> None:
        """Keep latents for :meth:`recall`, and for a request that is encoded alone."""
        self._engine.latents.put(f"{self._calls(context)}:{sources.key}", joined)

    def inputs(
        self,
        model: FrozenWorldModel,
        sources: HistorySources,
        context: RequestContext,
        mode: NumericMode,
    ) -> tuple[Tensor, Tensor] | None:
        """Make model input of all frames of a request, and find the views that changed nothing.

        (n, 3, height, width) and bool (views,), on the device. None for what has to be encoded in
        parts: views that are the same, too many frames for a call, or one that cannot be drawn.
        """
        each, views = sources.all, sources.views
        count = self.frames_per_call(model, sources.clean.pixels)
        if len(each) != 1 + len(views) + len(sources.extra) or sources.frames > count:
            return None
        dtype, device = latent_dtype(mode), self._engine.device
        with self._engine.drawing(drawing_of(each, model.card), context) as turn:
            made, drawn, same = make_inputs(each, model.card, dtype, device, turn)
        inputs = [x for source in each if isinstance(x := made[source], Tensor)]
        if len(inputs) < len(each) or (drawn and drawn != views):
            return None
        if not drawn:
            same = torch.zeros(len(views), dtype=torch.bool, device=device)
        return torch.cat(inputs), same

    def _calls(self, context: RequestContext) -> str:
        """Name the device calls of requests that are encoded alone; others have other bits."""
        return f"{type(context).__name__}{context.priority}"

    def _fresh(
        self,
        model: FrozenWorldModel,
        sources: Sequence[FrameSource],
        context: RequestContext,
        mode: NumericMode,
    ) -> dict[FrameSource, Tensor | AcpcError]:
        """Encode every source; a view that equals its history gets the history's latents."""
        found: dict[FrameSource, Tensor | AcpcError] = {}
        card, dtype = model.card, latent_dtype(mode)
        for group in self._grouped(card, sources, context):
            with self._engine.drawing(drawing_of(group, card), context) as turn:
                made, drawn, same = make_inputs(group, card, dtype, self._engine.device, turn)
            found |= {source: made[source] for source in group}
            if frames := {x: one for x in group if isinstance(one := made[x], Tensor)}:
                joined = torch.cat([*frames.values()])
                encoded = self._engine.encode(model, joined, context, mode)
                parts = torch.split(encoded, [len(x) for x in frames.values()])
                found |= zip(frames, parts, strict=True)
            for view, is_base in zip(drawn, to_host(same).tolist(), strict=True):
                if is_base:  # known after the encoder: nothing more waits
                    found[view] = found[view.base]
        return found

    def _grouped(
        self, card: ModelCard, sources: Sequence[FrameSource], context: RequestContext
    ) -> Iterator[list[FrameSource]]:
        """Yield sources of one size a call at a time, so that a request never holds all frames."""
        if not sources:
            return
        group: list[FrameSource] = []
        size, count = input_size(sources[0].pixels.shape, card.image_size), 0
        most = frames_per_call(self._engine.device.type, context.priority, card, *size)
        for source in sources:
            group.append(source)
            count += source.frames
            if count >= most:
                yield group
                group, count = [], 0
        if group:
            yield group


def check_latents(
    engine: DeviceClient,
    model: FrozenWorldModel,
    mode: NumericMode,
    count: int,
    field: str,
    what: str,
) -> None:
    """Raise InvalidArgument, ``field``, where ``what`` needs more latents than may be held."""
    width, size = model.card.latent_dim, latent_dtype(mode).itemsize
    if (needed := count * width * size) > engine.max_latents:
        raise InvalidArgument(
            field,
            f"{what} need {count} latents of {width} numbers, {needed} bytes, over the limit of "
            f"{engine.max_latents}; ask for fewer",
            reason="TOO_MANY_LATENTS",
        )


def check_history_frames(card: ModelCard, history: np.ndarray) -> None:
    """Raise InvalidArgument for frames too thin, or more of them than the model sees."""
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
    """Raise InvalidArgument for action blocks of another width than the checkpoint's."""
    if width != card.action_block_dim:
        raise InvalidArgument(
            f"{field}.shape",
            f"block width {width}, but the checkpoint expects frameskip x action_dim = "
            f"{card.action_block_dim}",
        )


def check_predictions(*latents: Tensor) -> None:
    """Raise FailedPrecondition when the checkpoint gave NaN, infinity or what no cost holds."""
    for values in latents:
        if values.numel() and not float(vector_norm(values, math.inf)) < LARGEST:
            raise predictions_not_finite()


def predictions_not_finite() -> FailedPrecondition:
    """Return the error of a checkpoint that gave NaN or infinity."""
    return FailedPrecondition(
        "the checkpoint's predictions are not finite for this history and these actions; check "
        "that the action blocks are normalised as in training",
        reason="PREDICTION_NOT_FINITE",
    )
