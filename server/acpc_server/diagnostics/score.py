"""Is this checkpoint fit to ship? IR, SR and the verdict from the records of its shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from acpc_server.data import Anchors
from acpc_server.diagnostics.plan import Role, ScorePlan
from acpc_server.diagnostics.receipt import Receipt, device_name
from acpc_server.diagnostics.shard import ShardRecord
from acpc_server.engine import DeviceEngine, Ticket
from acpc_server.models import FrozenWorldModel
from acpc_server.numerics import consistency, pairing, screening


def different_state_distances(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    anchors: Anchors,
    plan: ScorePlan,
    record: ShardRecord,
    ticket: Ticket,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances D_i (Eq. different-state-distance) and partners j(i).

    The partner keeps its own past blocks and takes the anchor's current and future blocks, so that
    both rollouts run under the actions a_i.

    Returns:
        float64 (n,), NaN where an anchor is skipped, and int64 (n,), -1 where skipped.
    """
    labels = torch.from_numpy(anchors.labels)
    pairs = pairing.pair_different_labels(torch.from_numpy(anchors.endpoint_states), labels)
    # A skipped anchor rolls beside itself, so that the batch has one shape; its row is ignored.
    skipped = pairs.partner < 0
    partner = torch.where(skipped, torch.arange(len(labels)), pairs.partner)
    latents = torch.from_numpy(record.history_latents)  # (n, h, dim)
    blocks = torch.from_numpy(anchors.action_blocks)  # (n, h + H - 1, width)
    past = anchors.history - 1
    partner_blocks = torch.cat([blocks[partner, :past], blocks[:, past:]], dim=1)
    rollouts = engine.rollout(
        model,
        torch.cat([latents, latents[partner]]),
        torch.cat([blocks, partner_blocks]),
        ticket,
        plan.numeric_mode,
    )  # (2 n, H, dim)
    distances = screening.different_state_distance(
        rollouts[: len(labels)],
        rollouts[len(labels) :],
        consistency.horizon_weights(plan.protocol.weights, plan.protocol.horizon),
        screening.motion_scale_of(torch.from_numpy(record.transitions)),
    )
    return distances.masked_fill(skipped, torch.nan).numpy(), pairs.partner.numpy()


def summarise_checkpoint(
    plan: ScorePlan, record: ShardRecord, distances: np.ndarray, partner: np.ndarray
) -> dict[str, Any]:
    """Raw IR, SR and the per-anchor values of one checkpoint, ready for the job record."""
    protocol = plan.protocol
    steps = torch.from_numpy(record.step_distances)
    transitions = torch.from_numpy(record.transitions)
    weights = consistency.horizon_weights(protocol.weights, protocol.horizon)
    radius = _draw_radius(steps, transitions, weights)  # (n, M)
    ir_raw = screening.invariance_radius(radius, protocol.quantile)
    eligible = int((partner >= 0).sum())
    return {
        "ir_raw": ir_raw,
        "sr": screening.separation_rate(torch.from_numpy(distances), ir_raw, protocol.margin),
        "anchors": len(partner),
        "eligible": eligible,
        "skipped": len(partner) - eligible,
        "median_latent_distance": screening.median_latent_distance(
            torch.from_numpy(record.endpoint_latents)
        ),
        "summaries": _extra_summaries(plan, steps, transitions),
        "radius": radius.mean(dim=1).tolist(),
        "motion_scale": screening.motion_scale_of(transitions).tolist(),
        "different_state_distance": [None if np.isnan(d) else d for d in distances.tolist()],
        "partner": partner.tolist(),
        "draw_radius": radius.tolist(),
    }


def _draw_radius(steps: Tensor, transitions: Tensor, weights: Tensor) -> Tensor:
    acpc = consistency.acpc(steps, weights)  # (n, M)
    return screening.normalised_radius(acpc, screening.motion_scale_of(transitions))


def _extra_summaries(plan: ScorePlan, steps: Tensor, transitions: Tensor) -> list[dict[str, Any]]:
    """Raw IR at other horizons (uniform weights, s_i over the same horizon) and quantiles."""
    protocol = plan.protocol
    rows: list[dict[str, Any]] = []
    for horizon in dict.fromkeys((*protocol.extra_horizons, protocol.horizon)):
        full = horizon == protocol.horizon
        weights = consistency.horizon_weights(protocol.weights if full else (), horizon)
        radius = _draw_radius(steps[..., :horizon], transitions[:, :horizon], weights)
        rows.extend(
            {
                "horizon": horizon,
                "quantile": quantile,
                "ir_raw": screening.invariance_radius(radius, quantile),
            }
            for quantile in dict.fromkeys((*protocol.extra_quantiles, protocol.quantile))
        )
    return rows


def judge(plan: ScorePlan, scores: dict[Role, dict[str, Any]]) -> screening.Verdict:
    """The verdict on the checkpoint; relative to the reference when there is one."""
    score = scores["checkpoint"]
    reference = scores.get("reference", score) if plan.reference is not None else None
    return screening.screen(
        ir_raw=score["ir_raw"],
        sr=score["sr"],
        reference_ir_raw=None if reference is None else reference["ir_raw"],
        reference_sr=None if reference is None else reference["sr"],
        t_ir=plan.thresholds.ir,
        t_sr=plan.thresholds.sr,
    )


def score_receipt(plan: ScorePlan, anchors_digest: str, device: torch.device) -> Receipt:
    """Digests behind a job's result."""
    return Receipt(
        checkpoint_digest=plan.checkpoint.digest,
        reference_digest=plan.reference.digest if plan.reference else "",
        anchors_digest=anchors_digest,
        perturbation_digest=plan.perturbation_digest(),
        parameters_digest=plan.parameters_digest(),
        numeric_mode=plan.numeric_mode,
        device=device_name(device),
    )
