"""Do two views of one history lead to the same predicted future?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from acpc_server.diagnostics.receipt import Receipt, device_name, digest_arrays, digest_json
from acpc_server.diagnostics.views import PerturbationPlan, View, perturbed_views
from acpc_server.engine import DeviceEngine, LoadedCheckpoint, NumericMode, Ticket
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.models import FrozenWorldModel
from acpc_server.numerics import consistency
from acpc_server.numerics.pixels import to_model_input

# The shorter side becomes the model's image size, so a thin frame would become a huge one.
MAX_ASPECT = 8


@dataclass(frozen=True)
class PairRequest:
    """A clean history, its other views, and the actions both are rolled forward under.

    Attributes:
        history: uint8 (h, height, width, 3), 1 <= h <= the model's history.
        action_blocks: Normalised float32 (h + H - 1, block width); block k leaves frame k.
        perturbation: Specs to draw, or uint8 views (views, h, height, width, 3).
        observed_future: uint8 (H, height, width, 3), or None.
        weights: Horizon weights alpha_k; empty for 1/H.
    """

    history: np.ndarray
    action_blocks: np.ndarray
    perturbation: PerturbationPlan | np.ndarray
    observed_future: np.ndarray | None
    weights: Sequence[float]
    numeric_mode: NumericMode

    @property
    def horizon(self) -> int:
        """Predicted steps H."""
        return int(self.action_blocks.shape[0] - self.history.shape[0] + 1)


@dataclass(frozen=True)
class ErrorDrift:
    """Errors of both rollouts against the observed future (Proposition 1)."""

    clean_error: float
    perturbed_error: float
    drift: float
    bound: float


@dataclass(frozen=True)
class PairResult:
    """The measurements of one view."""

    view: View
    acpc: float
    acpc_one_step: float
    step_distances: list[float]
    encoder_shift: float
    error_drift: ErrorDrift | None


@dataclass(frozen=True)
class PairAnswer:
    """One result per view, spec-major then draw, and the receipt of all of them."""

    results: list[PairResult]
    receipt: Receipt


class PairComparison:
    """Computes pairwise ACPC on the engine.

    Args:
        engine: Owner of the device.
        max_frames: Frames one request may have encoded, views included.
    """

    def __init__(self, engine: DeviceEngine, max_frames: int) -> None:
        self._engine = engine
        self._max_frames = max_frames

    def compare(
        self, checkpoint: LoadedCheckpoint, request: PairRequest, ticket: Ticket
    ) -> PairAnswer:
        """ACPC_H, ACPC_1, per-step distances, encoder shift and, given a future, error drift.

        Raises:
            InvalidArgument: A field does not fit the checkpoint or a limit; names the field.
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        model = checkpoint.model
        weights = consistency.horizon_weights(request.weights, request.horizon)  # (H,)
        request.numeric_mode.require(self._engine.device)
        _check_fit(model, request)
        clean, perturbed, future = self._latents(model, request, ticket)
        histories = torch.cat([clean[None], perturbed])  # (1 + views, h, dim)
        blocks = torch.from_numpy(request.action_blocks).expand(len(histories), -1, -1)
        rollouts = self._engine.rollout(model, histories, blocks, ticket, request.numeric_mode)
        measured = _measure(rollouts, clean, perturbed, future, weights)
        return PairAnswer(_in_order(request, measured), self._receipt(checkpoint, request))

    def _latents(
        self, model: FrozenWorldModel, request: PairRequest, ticket: Ticket
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        size, frames = model.card.image_size, len(request.history)
        history = to_model_input(torch.from_numpy(request.history), size)  # (h, 3, s, s)
        if isinstance(request.perturbation, PerturbationPlan):
            count = len(request.perturbation.distinct())
            self._check_frames(count, frames, "perturbations.draws")
            views = _draw_views(history, request.perturbation)
        else:
            count = len(request.perturbation)
            self._check_frames(count, frames, "explicit_views.shape")
            views = to_model_input(torch.from_numpy(request.perturbation).flatten(0, 1), size)
        parts = [history, views.reshape(-1, *history.shape[1:])]
        if request.observed_future is not None:
            parts.append(to_model_input(torch.from_numpy(request.observed_future), size))
        latents = self._engine.encode(model, torch.cat(parts), ticket, request.numeric_mode)
        split = [frames, count * frames, len(latents) - (1 + count) * frames]
        clean, perturbed, future = torch.split(latents, split)
        views = perturbed.reshape(count, frames, -1)  # (views, h, dim)
        return clean, views, future if len(future) else None

    def _check_frames(self, views: int, frames: int, field: str) -> None:
        if views * frames > self._max_frames:
            raise InvalidArgument(
                field,
                f"{views} views of {frames} frames are {views * frames} frames, "
                f"over the limit of {self._max_frames}; split the request",
                reason="TOO_MANY_FRAMES",
            )

    def _receipt(self, checkpoint: LoadedCheckpoint, request: PairRequest) -> Receipt:
        plan = request.perturbation
        if isinstance(plan, PerturbationPlan):
            perturbation_digest = plan_digest(plan)
        else:
            perturbation_digest = digest_arrays([("explicit_views", plan)])
        return Receipt(
            checkpoint_digest=checkpoint.model.card.digest,
            reference_digest="",
            anchors_digest=digest_arrays(
                [
                    ("history", request.history),
                    ("action_blocks", request.action_blocks),
                    ("observed_future", request.observed_future),
                ]
            ),
            perturbation_digest=perturbation_digest,
            parameters_digest=digest_json({"weights": list(request.weights)}),
            numeric_mode=request.numeric_mode,
            device=device_name(self._engine.device),
        )


def _draw_views(history: Tensor, plan: PerturbationPlan) -> Tensor:
    try:
        return perturbed_views(history, plan)
    except InvalidArgument as error:
        raise error.below("perturbations") from error


def plan_digest(plan: PerturbationPlan) -> str:
    """sha256 over specs, draws, seed and anchor."""
    return digest_json(
        {
            "specs": [spec.digest for spec in plan.specs],
            "draws": plan.draws,
            "seed": plan.seed,
            "anchor": plan.anchor,
        }
    )


def _check_fit(model: FrozenWorldModel, request: PairRequest) -> None:
    card, frames = model.card, len(request.history)
    height, width = request.history.shape[1:3]
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise InvalidArgument(
            "history.shape",
            f"frames of {height} x {width} pixels; one side may be at most {MAX_ASPECT} times "
            "the other",
        )
    if frames > card.history:
        raise InvalidArgument(
            "history.shape", f"{frames} frames, but the checkpoint sees at most {card.history}"
        )
    width = request.action_blocks.shape[1]
    if width != card.action_block_dim:
        raise InvalidArgument(
            "action_blocks.shape",
            f"block width {width}, but the checkpoint expects frameskip x action_dim = "
            f"{card.action_block_dim}",
        )
    future = request.observed_future
    if future is not None and len(future) != request.horizon:
        raise InvalidArgument(
            "observed_future.shape",
            f"{len(future)} frames, but the action blocks give a horizon of {request.horizon}",
        )


def _measure(
    rollouts: Tensor, clean: Tensor, perturbed: Tensor, future: Tensor | None, weights: Tensor
) -> list[PairResult]:
    """One result per distinct view, in their order; the clean rollout is the first."""
    steps = consistency.step_distances(rollouts[:1], rollouts[1:])  # (views, H)
    acpc = consistency.acpc(steps, weights)  # (views,)
    if not torch.isfinite(acpc).all():
        raise FailedPrecondition(
            "the checkpoint's predictions are not finite for this history and these actions; check "
            "that the action blocks are normalised as in training",
            reason="PREDICTION_NOT_FINITE",
        )
    shift = consistency.encoder_shift(clean[None], perturbed)  # (views,)
    drifts: list[ErrorDrift | None] = [None] * len(acpc)
    if future is not None:
        drifts[:] = _error_drifts(rollouts, future, weights, acpc)
    return [
        PairResult(
            view=View(0, row),
            acpc=float(acpc[row]),
            acpc_one_step=float(steps[row, 0]),
            step_distances=steps[row].tolist(),
            encoder_shift=float(shift[row]),
            error_drift=drifts[row],
        )
        for row in range(len(acpc))
    ]


def _error_drifts(
    rollouts: Tensor, future: Tensor, weights: Tensor, acpc: Tensor
) -> list[ErrorDrift]:
    errors = consistency.prediction_error(rollouts, future[None], weights)  # (1 + views,)
    clean, perturbed = errors[:1], errors[1:]
    drift = consistency.error_drift(clean, perturbed)  # (views,)
    bound = consistency.drift_bound(
        acpc, clean, perturbed, horizon=rollouts.shape[1], dim=rollouts.shape[2]
    )  # (views,)
    rows = zip(perturbed.tolist(), drift.tolist(), bound.tolist(), strict=True)
    return [ErrorDrift(float(clean), *row) for row in rows]


def _in_order(request: PairRequest, measured: list[PairResult]) -> list[PairResult]:
    """A result for every view asked for; draws of a deterministic spec share one."""
    plan = request.perturbation
    if not isinstance(plan, PerturbationPlan):
        return measured
    rows = {view: row for row, view in enumerate(plan.distinct())}
    return [replace(measured[rows[plan.source(view)]], view=view) for view in plan.views()]
