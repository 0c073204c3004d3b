"""A clean history and its other views as latents: what every interactive answer starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from acpc_server.diagnostics.views import PerturbationPlan, Views, perturbed_views
from acpc_server.engine import DeviceEngine, NumericMode, Ticket
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.models import FrozenWorldModel, ModelCard
from acpc_server.numerics.pixels import to_model_input

# The shorter side becomes the model's image size, so a thin frame would become a huge one.
MAX_ASPECT = 8
MAX_HORIZON = 1024


@dataclass(frozen=True)
class EncodedHistories:
    """Projected latents, float32.

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
        engine: Owner of the device.
        max_frames: Frames of views one request may have encoded.
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
        ticket: Ticket,
        mode: NumericMode,
    ) -> EncodedHistories:
        """Latents of everything, each view once however often it is asked for.

        Args:
            model: The checkpoint.
            history: uint8 (h, height, width, 3); :func:`check_history_frames` has passed.
            views: Its other views.
            extra: uint8 (n, height, width, 3) frames of the same size, or None.
            ticket: The request's claim on the device.
            mode: Arithmetic of the network.

        Raises:
            InvalidArgument: Too many frames, or a perturbation that does not fit them.
            FailedPrecondition: A plug-in perturbation that breaks its promise.
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        size, frames = model.card.image_size, len(history)
        clean = to_model_input(torch.from_numpy(history), size)  # (h, 3, s, s)
        if isinstance(views, PerturbationPlan):
            count = len(views.distinct())
            self._check_frames(count, frames, "perturbations.draws")
            others = _draw_views(clean, views)
        else:
            count = len(views)
            self._check_frames(count, frames, "explicit_views.shape")
            others = to_model_input(torch.from_numpy(views).flatten(0, 1), size)
        parts = [clean, others.reshape(-1, *clean.shape[1:])]
        if extra is not None:
            parts.append(to_model_input(torch.from_numpy(extra), size))
        latents = self._engine.encode(model, torch.cat(parts), ticket, mode)
        split = [frames, count * frames, len(latents) - (1 + count) * frames]
        first, rest, last = torch.split(latents, split)
        return EncodedHistories(first, rest.reshape(count, frames, -1), last)

    def _check_frames(self, views: int, frames: int, field: str) -> None:
        if views * frames > self._max_frames:
            raise InvalidArgument(
                field,
                f"{views} views of {frames} frames are {views * frames} frames, "
                f"over the limit of {self._max_frames}; split the request",
                reason="TOO_MANY_FRAMES",
            )


def check_history_frames(card: ModelCard, history: np.ndarray) -> None:
    """Refuse, with InvalidArgument, frames too thin or more of them than the model sees."""
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
    """Refuse, with InvalidArgument, action blocks of another width than the checkpoint's."""
    if width != card.action_block_dim:
        raise InvalidArgument(
            f"{field}.shape",
            f"block width {width}, but the checkpoint expects frameskip x action_dim = "
            f"{card.action_block_dim}",
        )


def check_predictions(*latents: Tensor) -> None:
    """Raise FailedPrecondition when the checkpoint gave NaN or infinity."""
    if not all(bool(torch.isfinite(values).all()) for values in latents):
        raise FailedPrecondition(
            "the checkpoint's predictions are not finite for this history and these actions; check "
            "that the action blocks are normalised as in training",
            reason="PREDICTION_NOT_FINITE",
        )


def _draw_views(history: Tensor, plan: PerturbationPlan) -> Tensor:
    try:
        return perturbed_views(history, plan)
    except InvalidArgument as error:
        raise error.below("perturbations") from error
