"""Encodes a clean history and its other views, with which every interactive answer starts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from acpc.contract import NumericMode, PerturbationSet, Views
from torch import Tensor

from acpc_server.encoding.views import View, distinct_views, draw_view
from acpc_server.engine import DeviceEngine, frames_per_call, latent_dtype
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.models import FrozenWorldModel, ModelCard
from acpc_server.numerics import to_model_input
from acpc_server.scheduling import RequestContext

KEY_BYTES = 16


@dataclass(frozen=True)
class FrameSource:
    """Frames that are encoded together.

    Attributes:
        key: Equal for equal latents: covers checkpoint, arithmetic and content.
        make: The frames as model input, (n, 3, height, width); none (n = 0) for a view that turns
            out to be the history itself.
    """

    key: bytes
    make: Callable[[], Tensor]


class FrameSources:
    """Sources for one checkpoint in one arithmetic."""

    def __init__(self, card: ModelCard, mode: NumericMode) -> None:
        self._size = card.image_size
        self._dtype = latent_dtype(mode)
        self._prefix = f"{card.digest}:{mode!s}:".encode()

    def frames(self, frames: np.ndarray) -> list[FrameSource]:
        """A source per frame of uint8 (n, height, width, 3)."""
        return [
            FrameSource(self._key(b"frame", frame), partial(self._input, frame[None]))
            for frame in frames
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
                else FrameSource(self._key(b"view", view), partial(self._input, view))
                for view in views
            ]
        return self.draws(history, views, distinct_views(views))

    def draws(
        self, history: np.ndarray, views: PerturbationSet, which: Sequence[View]
    ) -> list[FrameSource | None]:
        """A source per view of ``which``, as :meth:`views`; a draw may be any of the spec's."""
        clean = cache(partial(self._input, history))
        content = self._key(b"history", history)

        def draw(view: View) -> Tensor:
            try:
                drawn = draw_view(clean(), views, view)
            except InvalidArgument as error:
                raise error.below("perturbations") from error
            return drawn[:0] if torch.equal(drawn, clean()) else drawn

        specs = [spec.digest for spec in views.specs]

        def key(view: View) -> bytes:
            text = f"{specs[view.spec_index]}:{views.seed}:{views.anchor}:{view.draw}".encode()
            return hashlib.blake2b(content + text, digest_size=KEY_BYTES).digest()

        return [
            None
            if views.specs[view.spec_index].changes_nothing
            else FrameSource(key(view), partial(draw, view))
            for view in which
        ]

    def _input(self, frames: np.ndarray) -> Tensor:
        # A copy: a message's bytes are read-only, and torch has no read-only tensors.
        return to_model_input(torch.from_numpy(frames.copy()), self._size, self._dtype)

    def _key(self, role: bytes, frames: np.ndarray) -> bytes:
        content = hashlib.blake2b(self._prefix + role, digest_size=KEY_BYTES)
        content.update(str(frames.shape).encode())
        content.update(np.ascontiguousarray(frames).data)
        return content.digest()


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


class HistoryEncoder:
    """Encodes a history, its views and what goes with them in one go.

    Args:
        max_frames: Frames one request may have encoded beside its history.
    """

    def __init__(self, engine: DeviceEngine, max_frames: int) -> None:
        self._engine = engine
        self._max_frames = max_frames

    def encode(
        self,
        model: FrozenWorldModel,
        history: np.ndarray,
        views: Views,
        extra: np.ndarray | None,
        context: RequestContext,
        mode: NumericMode,
    ) -> EncodedHistories:
        """Latents of everything, each view once however often it is asked for.

        ``history``, uint8 (h, height, width, 3), has passed :func:`check_history_frames`; ``extra``
        are frames (n, height, width, 3) of the same size.

        Raises:
            InvalidArgument: Too many frames, or a perturbation that does not fit them.
            FailedPrecondition: A plug-in perturbation that breaks its promise.
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        drawn = isinstance(views, PerturbationSet)
        count = len(distinct_views(views) if isinstance(views, PerturbationSet) else views)
        field = "perturbations.draws" if drawn else "explicit_views.shape"
        self._check_frames(count, len(history), 0 if extra is None else len(extra), field)
        sources = FrameSources(model.card, mode)
        clean = sources.frames(history)
        others = sources.views(history, views)
        rest = [] if extra is None else sources.frames(extra)
        changed = [source for source in others if source is not None]
        groups = iter(self._latents(model, [*clean, *changed, *rest], context, mode))
        history_latents = torch.cat([next(groups) for _ in clean])  # (h, dim)
        return EncodedHistories(
            history_latents,
            _stacked(others, groups, history_latents),
            torch.cat([history_latents[:0], *groups]),
        )

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

        Raises as :meth:`encode`; ``which`` may be draws beyond those that ``views`` asks for.
        """
        sources = FrameSources(model.card, mode).draws(history, views, which)
        changed = [source for source in sources if source is not None]
        return _stacked(sources, iter(self._latents(model, changed, context, mode)), clean)

    def _latents(
        self,
        model: FrozenWorldModel,
        sources: list[FrameSource],
        context: RequestContext,
        mode: NumericMode,
    ) -> list[Tensor]:
        """Latents of every source; only those not seen lately are made and encoded."""
        cache = self._engine.latents
        found = {source.key: cache.get(source.key) for source in sources}
        missing = {source.key: source for source in sources if found[source.key] is None}
        for group in _grouped(missing.values(), context, self._engine.device.type):
            frames = torch.cat([made for _, made in group])
            encoded = torch.empty(0, model.card.latent_dim)
            if len(frames):
                encoded = self._engine.encode(model, frames, context, mode)
            parts = torch.split(encoded, [len(made) for _, made in group])
            for (key, _), part in zip(group, parts, strict=True):
                found[key] = part
                cache.put(key, part)
        return [latents for s in sources if (latents := found[s.key]) is not None]

    def _check_frames(self, views: int, frames: int, extra: int, field: str) -> None:
        total = views * frames + extra
        if total > self._max_frames:
            raise InvalidArgument(
                "observed_future.shape" if extra > views * frames else field,
                f"{views} views of {frames} frames and {extra} frames beside them are {total} "
                f"frames, over the limit of {self._max_frames}; split the request",
                reason="TOO_MANY_FRAMES",
            )


def _stacked(
    sources: Sequence[FrameSource | None], groups: Iterator[Tensor], clean: Tensor
) -> Tensor:
    """Latents of each source, the clean history's where a view is the history itself."""
    found = (clean if source is None else next(groups) for source in sources)
    return torch.stack([latents if len(latents) else clean for latents in found])


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
        raise FailedPrecondition(
            "the checkpoint's predictions are not finite for this history and these actions; check "
            "that the action blocks are normalised as in training",
            reason="PREDICTION_NOT_FINITE",
        )


def _grouped(
    sources: Iterable[FrameSource], context: RequestContext, device: str
) -> Iterator[list[tuple[bytes, Tensor]]]:
    """Frames made a device call at a time, so that a request never holds all of them."""
    group: list[tuple[bytes, Tensor]] = []
    for source in sources:
        frames = source.make()
        group.append((source.key, frames))
        size = frames_per_call(device, context.priority, *frames.shape[-2:])
        if sum(len(made) for _, made in group) >= size:
            yield group
            group = []
    if group:
        yield group
