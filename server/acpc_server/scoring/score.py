"""Computes IR, SR and the verdict of a checkpoint from the records of its shards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import structlog
import torch
from acpc.contract import (
    AnchorValues,
    CheckpointRef,
    CheckpointScore,
    Evidence,
    EvidenceOptions,
    IrSummary,
    LookStop,
    NumericMode,
    Outcome,
    PartnerPast,
    Score,
    SequentialLooks,
    SkipReason,
    Thresholds,
    Verdict,
    from_plain,
    to_plain,
)
from jaxtyping import Float64, Int64
from torch import Tensor

from acpc_server import evidence
from acpc_server.data import Anchors
from acpc_server.encoding import encode_frames, receipt_from_json
from acpc_server.engine import DeviceEngine, computes_float64, held_rows
from acpc_server.errors import ResourceExhausted
from acpc_server.jobs import Json, pack, unpack
from acpc_server.models import FrozenWorldModel, Widens
from acpc_server.numerics import Check, consistency, go_on, screening, verdict
from acpc_server.scheduling import RequestContext
from acpc_server.scoring.shard import ShardRecord, score_shard
from acpc_server.scoring.spec import Role, ScoreSpec

log = structlog.get_logger("acpc.scoring")
# Anchors rolled forward beside their partners at a time. Like a shard's size, part of what a score
# means: float32 matrix products depend on the batch in their last bits.
SEPARATED_ANCHORS = 512
# Rounding errors in a rounding floor: at a hundred floors raw IR is good to 1e-4.
FLOOR_ERRORS = 100
FP64_TO_FP32 = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps


def different_state_distances(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    anchors: Anchors,
    spec: ScoreSpec,
    record: ShardRecord,
    partner: Int64[np.ndarray, "n"],
    context: RequestContext,
) -> Float64[np.ndarray, "n"]:
    """Distances D_i (Eq. different-state-distance) to the partners j(i); NaN where skipped.

    The partner takes the anchor's current and future blocks, so that both rollouts run under the
    actions a_i; of past blocks it keeps its own, or takes the anchor's too, as the protocol says.
    """
    weights = consistency.horizon_weights(spec.protocol.weights, spec.protocol.horizon)
    count = anchors.count
    own_past = anchors.history - 1 if spec.protocol.partner_past is PartnerPast.OWN else 0
    # A skipped anchor rolls beside itself, so that batches have one shape; its row is ignored.
    other = np.where(partner < 0, np.arange(count), partner)
    distances = np.empty(count)
    size = max(1, min(SEPARATED_ANCHORS, held_rows(model.card, spec.protocol.horizon) // 2))
    for start in range(0, count, size):
        own = slice(start, start + size)
        blocks = torch.from_numpy(anchors.action_blocks[own])  # (m, h + H - 1, width)
        past_blocks = torch.from_numpy(anchors.action_blocks[other[own], :own_past])
        rows = np.concatenate([np.arange(count)[own], other[own]])
        rollouts = engine.rollout(
            model,
            _histories(engine, model, anchors, spec, record, rows, context),  # (2 m, h, dim)
            torch.cat([blocks, torch.cat([past_blocks, blocks[:, own_past:]], dim=1)]),
            context,
            spec.numeric_mode,
        )  # (2 m, H, dim)
        distances[own] = screening.different_state_distance(
            rollouts[: len(blocks)],
            rollouts[len(blocks) :],
            weights,
            torch.from_numpy(record.motion_scale[own]),
        ).numpy()
    distances[partner < 0] = np.nan
    return distances


def _histories(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    anchors: Anchors,
    spec: ScoreSpec,
    record: ShardRecord,
    rows: Int64[np.ndarray, "m"],
    context: RequestContext,
) -> Tensor:
    """Latents of some anchors' histories, (m, h, dim), where the record has none encoded again."""
    if record.history_latents.size:
        return torch.from_numpy(record.history_latents[rows])
    mode, kept = spec.numeric_mode, range(anchors.history)
    parts = [
        encode_frames(engine, model, mode, anchors, range(row, row + 1), kept, context)
        for row in rows.tolist()
    ]
    return torch.cat(parts)


def with_endpoints(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    anchors: Anchors,
    spec: ScoreSpec,
    record: ShardRecord,
    context: RequestContext,
) -> ShardRecord:
    """The record with the latents of the anchors' endpoints, where it has none."""
    if record.endpoint_latents.size:
        return record
    numpy_type = np.float64 if spec.numeric_mode is NumericMode.FP64 else np.float32
    last, size = anchors.history + spec.protocol.horizon - 1, held_rows(model.card, 1)
    found = np.empty((anchors.count, model.card.latent_dim), numpy_type)
    for start in range(0, anchors.count, size):
        rows = range(start, min(start + size, anchors.count))
        latents = encode_frames(engine, model, spec.numeric_mode, anchors, rows, [last], context)
        found[start : start + size] = latents[:, 0].numpy()
    return replace(record, endpoint_latents=found)


def summarise_checkpoint(
    spec: ScoreSpec,
    record: ShardRecord,
    distances: Float64[np.ndarray, "n"],
    partner: Int64[np.ndarray, "n"],
    check: Check = go_on,
) -> dict[str, Any]:
    """Raw IR, SR and the per-anchor values of one checkpoint, ready for the job record.

    ``check`` is called between blocks of work and may raise to end it.
    """
    protocol = spec.protocol
    radius = torch.from_numpy(record.draw_radius)  # (n, M)
    ir_raw = screening.invariance_radius(radius, protocol.quantile)
    eligible = int((partner >= 0).sum())
    return {
        "ir_raw": ir_raw,
        "sr": screening.separation_rate(torch.from_numpy(distances), ir_raw, protocol.margin),
        "anchors": len(partner),
        "eligible": eligible,
        "skipped": len(partner) - eligible,
        "median_latent_distance": screening.median_latent_distance(
            torch.from_numpy(record.endpoint_latents), check
        ),
        "summaries": _summaries(spec, torch.from_numpy(record.horizon_radius)),
        "radius": pack(radius.mean(dim=1).numpy()),
        "motion_scale": pack(record.motion_scale),
        "different_state_distance": pack(distances),
        "partner": pack(partner),
        "draw_radius": pack(record.draw_radius),
        "step_radius": pack(record.step_radius),
    }


def _summaries(spec: ScoreSpec, horizon_radius: Tensor) -> list[dict[str, Any]]:
    """Raw IR at every horizon and quantile asked for."""
    protocol = spec.protocol
    return [
        {
            "horizon": horizon,
            "quantile": quantile,
            "ir_raw": screening.invariance_radius(radius[:, None], quantile),
        }
        for horizon, radius in zip(spec.horizons(), horizon_radius.T, strict=True)
        for quantile in dict.fromkeys((*protocol.extra_quantiles, protocol.quantile))
    ]


def rounding_floor(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    anchors: Anchors,
    spec: ScoreSpec,
    record: ShardRecord,
    context: RequestContext,
) -> float | None:
    """Raw IR below which the network's rounding leaves it fewer than two digits.

    The anchors that decide raw IR are measured again in float64, each on its own, and a hundred
    times the largest difference of a draw's radius is the floor. A job in float64 measures them
    in float32 and scales the difference by the ratio of the two types' precisions.

    None for a family or a device that has no float64, and, with a warning in the log, where the
    other type has no room in memory or its radii are not finite: the score stands without its
    floor.
    """
    if not (isinstance(model, Widens) and computes_float64(engine.device)):
        return None
    exact = spec.numeric_mode is NumericMode.FP64
    other = replace(spec, numeric_mode=NumericMode.FP32 if exact else NumericMode.FP64)
    mean_radius = torch.from_numpy(record.draw_radius).mean(dim=1)
    deciding = screening.deciding_anchors(mean_radius, spec.protocol.quantile)
    try:
        rows = [
            score_shard(engine, model, anchors, other, (i, i + 1), context).draw_radius[0]
            for i in deciding
        ]
    except ResourceExhausted as error:
        log.warning("rounding_floor_not_measured", digest=model.card.digest, why=error.message)
        return None
    worst = float(np.abs(np.stack(rows) - record.draw_radius[deciding]).max())  # NaN if any is
    if not math.isfinite(worst):
        why = f"the checkpoint's predictions are not finite in {other.numeric_mode}"
        log.warning("rounding_floor_not_measured", digest=model.card.digest, why=why)
        return None
    return FLOOR_ERRORS * worst * (FP64_TO_FP32 if exact else 1.0)


def judge(spec: ScoreSpec, scores: dict[Role, dict[str, Any]]) -> Verdict:
    """The verdict on the checkpoint; relative to the reference when there is one."""
    score = scores["checkpoint"]
    reference = scores.get("reference", score) if spec.reference is not None else None
    return verdict.screen(
        ir_raw=score["ir_raw"],
        sr=score["sr"],
        reference_ir_raw=None if reference is None else reference["ir_raw"],
        reference_sr=None if reference is None else reference["sr"],
        t_ir=spec.thresholds.ir,
        t_sr=spec.thresholds.sr,
    )


def weigh(
    spec: ScoreSpec,
    scores: Mapping[Role, Mapping[str, Any]],
    check: Check = go_on,
    options: EvidenceOptions | None = None,
) -> Evidence:
    """How sure the scores and the verdict on them are; ``options`` by default as the job says."""
    sides = {role: _sample(score) for role, score in scores.items()}
    own = sides["checkpoint"]
    against = sides.get("reference", own) if spec.reference is not None else None
    asked = options or spec.evidence
    return evidence.judge(own, against, spec.protocol, spec.thresholds, asked, check)


def evidence_of(
    spec: ScoreSpec,
    scores: Mapping[Role, Mapping[str, Any]],
    seen: Sequence[evidence.Seen],
    check: Check = go_on,
) -> Evidence:
    """The evidence of a job that has ended, at its last look where it had some."""
    if not seen or spec.until_decided is None:
        return weigh(spec, scores, check)
    looks = SequentialLooks(
        confidence=spec.evidence.confidence,
        limit=spec.anchors.count,
        batch=spec.looks()[0],
        stop=LookStop.DECIDED if seen[-1].decided else LookStop.LIMIT,
        looks=tuple(one.look for one in seen),
    )
    return replace(weigh(spec, scores, check, seen[-1].options), looks=looks)


def _sample(score: Mapping[str, Any]) -> evidence.AnchorSample:
    return evidence.AnchorSample(
        radius=unpack(score["radius"]),
        distance=unpack(score["different_state_distance"]),
        partner=unpack(score["partner"]),
        trajectory=unpack(score["trajectory_ids"]),
        rounding_floor=score["rounding_floor"],
    )


def verdict_to_json(verdict: Verdict) -> Json:
    """The verdict's form in the job record."""
    plain: Json = to_plain(verdict)
    thresholds, summary = plain.pop("thresholds"), plain.pop("summary")
    return {**plain, "t_ir": thresholds["ir"], "t_sr": thresholds["sr"], "summary": summary}


def read_score(spec: ScoreSpec, result: Mapping[str, Any]) -> Score:
    """The answer that the record of a job holds."""
    reference, verdict = result["reference"], dict(result["verdict"])
    thresholds = Thresholds(ir=verdict.pop("t_ir"), sr=verdict.pop("t_sr"))
    outcome = Outcome[verdict.pop("outcome").upper()]
    return Score(
        checkpoint=_read_checkpoint(result["checkpoint"], spec.named("checkpoint")),
        reference=reference and _read_checkpoint(reference, spec.named("reference")),
        verdict=Verdict(outcome=outcome, thresholds=thresholds, **verdict),
        receipt=receipt_from_json(result["receipt"]),
        evidence=from_plain(Evidence, result["evidence"]),
    )


def _read_checkpoint(score: Mapping[str, Any], named: CheckpointRef) -> CheckpointScore:
    reasons = tuple(map(SkipReason, unpack(score["skip_reasons"]).tolist()))
    arrays = {f.name for f in fields(AnchorValues)} - {"skip_reasons"}
    values = {name: unpack(score[name]) for name in arrays}
    numbers = {f.name: score[f.name] for f in fields(CheckpointScore) if f.name in score}
    return CheckpointScore(
        **{
            **numbers,
            "checkpoint": named,
            "summaries": tuple(IrSummary(**row) for row in score["summaries"]),
            "anchor_values": AnchorValues(skip_reasons=reasons, **values),
        }
    )
