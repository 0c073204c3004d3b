"""Compares the predicted futures of a clean history and its views (pairwise ACPC)."""

from __future__ import annotations

from dataclasses import replace

import torch
from acpc.contract import (
    ErrorDrift,
    NumericMode,
    PairComparison,
    PairRequest,
    PairResult,
)
from torch import Tensor

from acpc_server.encoding import (
    ArraysDigest,
    EncodedHistories,
    HistoryEncoder,
    check_block_width,
    check_history_frames,
    check_predictions,
    make_receipt,
    view_rows,
    views_digest,
)
from acpc_server.engine import DeviceEngine, LoadedCheckpoint, require_mode
from acpc_server.errors import InvalidArgument
from acpc_server.models import ModelCard
from acpc_server.numerics import consistency
from acpc_server.scheduling import RequestContext


class PairComparer:
    """Computes pairwise ACPC on the engine.

    Args:
        max_frames: Frames one request may have encoded, views included.
    """

    def __init__(self, engine: DeviceEngine, max_frames: int) -> None:
        self._engine = engine
        self._encoder = HistoryEncoder(engine, max_frames)

    def compare(
        self, checkpoint: LoadedCheckpoint, request: PairRequest, context: RequestContext
    ) -> PairComparison:
        """ACPC_H, ACPC_1, per-step distances, encoder shift and, given a future, error drift.

        Raises:
            InvalidArgument: A field does not fit the checkpoint or a limit; names the field.
            FailedPrecondition: The predictions are not finite.
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        with self._engine.limiter.slot(context):
            model, mode = checkpoint.model, request.numeric_mode or NumericMode.FP32
            weights = consistency.horizon_weights(request.weights, _horizon(request))  # (H,)
            require_mode(mode, self._engine.device, model)
            _check_fit(model.card, request)
            views = request.views
            assert views is not None  # noqa: S101 - checked
            latents = self._encoder.encode(
                model, request.history, views, request.observed_future, context, mode
            )
            histories = torch.cat([latents.clean[None], latents.views])  # (1 + views, h, dim)
            blocks = torch.from_numpy(request.action_blocks).expand(len(histories), -1, -1)
            rollouts = self._engine.rollout(model, histories, blocks, context, mode)
            measured = _measure(rollouts, latents, weights)
            arrays = ("history", "action_blocks", "observed_future")
            receipt = make_receipt(
                mode,
                self._engine.device,
                checkpoint_digest=model.card.digest,
                anchors_digest=ArraysDigest((name, getattr(request, name)) for name in arrays).hex,
                perturbation_digest=views_digest(views),
                parameters={"weights": list(request.weights)},
            )
            return PairComparison(
                tuple(replace(measured[row], **view._asdict()) for view, row in view_rows(views)),
                receipt,
            )


def _horizon(request: PairRequest) -> int:
    return len(request.action_blocks) - len(request.history) + 1


def _check_fit(card: ModelCard, request: PairRequest) -> None:
    check_history_frames(card, request.history)
    check_block_width(card, request.action_blocks.shape[1], "action_blocks")
    future = request.observed_future
    if future is not None and len(future) != _horizon(request):
        raise InvalidArgument(
            "observed_future.shape",
            f"{len(future)} frames, but the action blocks give a horizon of {_horizon(request)}",
        )


def _measure(rollouts: Tensor, latents: EncodedHistories, weights: Tensor) -> list[PairResult]:
    """One result per distinct view, in their order; the clean rollout is the first."""
    check_predictions(rollouts, latents.extra)
    steps = consistency.step_distances(rollouts[:1], rollouts[1:])  # (views, H)
    acpc = consistency.acpc(steps, weights)  # (views,)
    shift = consistency.encoder_shift(latents.clean[None], latents.views)  # (views,)
    drifts: list[ErrorDrift | None] = [None] * len(acpc)
    if len(latents.extra):
        errors = consistency.prediction_error(rollouts, latents.extra[None], weights)
        clean, perturbed = errors[:1], errors[1:]  # of (1 + views,)
        drift = consistency.error_drift(clean, perturbed)  # (views,)
        bound = consistency.drift_bound(
            acpc, clean, perturbed, horizon=rollouts.shape[1], dim=rollouts.shape[2]
        )  # (views,)
        changes = zip(perturbed.tolist(), drift.tolist(), bound.tolist(), strict=True)
        drifts[:] = [ErrorDrift(float(clean), *change) for change in changes]
    rows = zip(acpc.tolist(), steps.tolist(), shift.tolist(), drifts, strict=True)
    return [
        PairResult(
            spec_index=0,
            draw=row,
            acpc=pair_acpc,
            acpc_one_step=distances[0],
            step_distances=tuple(distances),
            encoder_shift=shifted,
            error_drift=drift,
        )
        for row, (pair_acpc, distances, shifted, drift) in enumerate(rows)
    ]
