"""Computes IR, SR and the verdict of a checkpoint from its record, and reads them from a job's."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from acpc.contract import (
    AnchorValues,
    CheckpointRef,
    CheckpointScore,
    Doubt,
    Evidence,
    EvidenceOptions,
    Fit,
    FitOutcome,
    GivenViews,
    IrSummary,
    LookStop,
    Outcome,
    Score,
    SequentialLooks,
    SkipReason,
    Thresholds,
    Verdict,
    from_plain,
    screen,
    to_plain,
    unless_misfit,
)
from jaxtyping import Float64, Int64

from acpc_server import evidence
from acpc_server.encoding import receipt_from_json
from acpc_server.jobs import Json, pack, unpack
from acpc_server.numerics import Check, go_on, screening
from acpc_server.scoring.measuring import ShardRecord
from acpc_server.scoring.spec import Role, ScoreSpec


def summarise_checkpoint(
    spec: ScoreSpec,
    record: ShardRecord,
    distances: Float64[np.ndarray, "n"],
    partner: Int64[np.ndarray, "n"],
    check: Check = go_on,
) -> dict[str, Any]:
    """Compute raw IR, SR and the per-anchor values of one checkpoint, for the job record.

    ``check`` is called between blocks of work and may raise to end it.
    """
    protocol = spec.protocol
    horizon_radius = torch.from_numpy(record.horizon_radius)
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
        "summaries": [
            {
                "horizon": horizon,
                "quantile": quantile,
                "ir_raw": screening.invariance_radius(own[:, None], quantile),
            }
            for horizon, own in zip(spec.horizons(), horizon_radius.T, strict=True)
            for quantile in dict.fromkeys((*protocol.extra_quantiles, protocol.quantile))
        ],
        "radius": pack(radius.mean(dim=1).numpy()),
        "motion_scale": pack(record.motion_scale),
        "different_state_distance": pack(distances),
        "partner": pack(partner),
        "draw_radius": pack(record.draw_radius),
        "step_radius": pack(record.step_radius),
    }


def judge(spec: ScoreSpec, scores: Mapping[Role, Mapping[str, Any]]) -> Verdict:
    """Judge the checkpoint, relative to the reference when there is one."""
    score, reference = spec.both(scores)
    found = screen(
        ir_raw=score["ir_raw"],
        sr=score["sr"],
        reference_ir_raw=None if reference is None else reference["ir_raw"],
        reference_sr=None if reference is None else reference["sr"],
        t_ir=spec.thresholds.ir,
        t_sr=spec.thresholds.sr,
    )
    return unless_misfit(found, misfit(spec, scores))


def misfit(spec: ScoreSpec, scores: Mapping[Role, Mapping[str, Any]]) -> str:
    """Say in words why IR and SR mean nothing: a side does not predict the data; else empty."""
    for role, score in scores.items():
        found = score.get("fit") and from_plain(Fit, score["fit"])
        if found and found.outcome is FitOutcome.DOES_NOT_FIT:
            return f"{spec.named(role).name} {found}"
    return ""


def weigh(
    spec: ScoreSpec,
    scores: Mapping[Role, Mapping[str, Any]],
    check: Check = go_on,
    options: EvidenceOptions | None = None,
) -> Evidence:
    """Weigh how sure the scores and their verdict are; ``options`` by default as the job says."""
    asked = options or spec.evidence
    return evidence.judge(*_samples(spec, scores), spec.protocol, spec.thresholds, asked, check)


def _samples(
    spec: ScoreSpec, scores: Mapping[Role, Mapping[str, Any]]
) -> tuple[evidence.CheckpointSample, evidence.CheckpointSample | None]:
    return spec.both({role: _sample(spec, score) for role, score in scores.items()})


def evidence_of(
    spec: ScoreSpec,
    scores: Mapping[Role, Mapping[str, Any]],
    seen: Sequence[evidence.LookResult],
    check: Check = go_on,
) -> Evidence:
    """Return the evidence of a job that has ended, at its last look where it had some."""
    options = seen[-1].options if seen else spec.evidence
    found = weigh(spec, scores, check, options)
    samples, screen = _samples(spec, scores), (spec.protocol, spec.thresholds)
    found = replace(found, other=evidence.other_population(*samples, *screen, options, check))
    if found.confident_outcome is not Outcome.FAILED and misfit(spec, scores):
        found = replace(
            found,
            confident_outcome=Outcome.DOES_NOT_FIT,
            doubt=Doubt.NONE,
            anchors_to_decide=None,
            trajectories_to_decide=None,
            p_passed=1.0,
        )
    if not seen or spec.until_decided is None:
        return found
    looks = SequentialLooks(
        confidence=spec.evidence.confidence,
        limit=spec.anchors.count,
        batch=spec.looks()[0],
        stop=LookStop.DECIDED if seen[-1].decided else LookStop.LIMIT,
        looks=tuple(one.look for one in seen),
    )
    return replace(found, looks=looks)


def _sample(spec: ScoreSpec, score: Mapping[str, Any]) -> evidence.CheckpointSample:
    draws = unpack(score["draw_radius"])
    given = isinstance(spec.shift, GivenViews)
    shared = given and evidence.draws_are_shared(draws)
    return evidence.CheckpointSample(
        radius=unpack(score["radius"]),
        distance=unpack(score["different_state_distance"]),
        partner=unpack(score["partner"]),
        trajectory=unpack(score["trajectory_ids"]),
        rounding_floor=score["rounding_floor"],
        windows=score.get("windows"),
        shared_draws=draws.shape[1] if shared else 0,
    )


def verdict_to_json(verdict: Verdict) -> Json:
    """Return the verdict's form in the job record."""
    plain: Json = to_plain(verdict)
    thresholds, summary = plain.pop("thresholds"), plain.pop("summary")
    return {**plain, "t_ir": thresholds["ir"], "t_sr": thresholds["sr"], "summary": summary}


def read_score(spec: ScoreSpec, result: Mapping[str, Any]) -> Score:
    """Read the answer from the record of a job."""
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
            "fit": from_plain(Fit, score["fit"]) if score.get("fit") else None,
            "checkpoint": named,
            "summaries": tuple(IrSummary(**row) for row in score["summaries"]),
            "anchor_values": AnchorValues(skip_reasons=reasons, **values),
        }
    )
