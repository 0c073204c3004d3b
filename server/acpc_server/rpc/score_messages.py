"""Specs and results of checkpoint jobs as messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acpc.contract import CheckpointRef, ScoreRequest
from acpc.v1 import scoring_service_pb2 as pb

from acpc_server.encoding import receipt_from_json
from acpc_server.jobs import Job, unpack
from acpc_server.rpc import codec
from acpc_server.rpc.job_messages import JobWriter, write_life
from acpc_server.rpc.request import write_anchors, write_mode
from acpc_server.scoring import AnchorPreview, ScoreSpec

PER_ANCHOR = (
    "anchor_ids",
    "radius",
    "motion_scale",
    "different_state_distance",
    "partner",
    "draw_radius",
    "step_radius",
)
OUTCOMES = {
    "passed": pb.OUTCOME_PASSED,
    "failed": pb.OUTCOME_FAILED,
    "inconclusive": pb.OUTCOME_INCONCLUSIVE,
}


def write_metadata(job: Job) -> pb.ScoreCheckpointMetadata:
    """What is measured and how far it is."""
    spec: Any = job.spec
    return pb.ScoreCheckpointMetadata(
        checkpoint=spec.checkpoint.to_message(),
        request=write_request(spec),
        **write_life(job),
    )


def write_request(spec: ScoreSpec) -> pb.ScoreCheckpointRequest:
    """The request of this job: defaults filled in, digests pinned, no request id."""
    asked = ScoreRequest(
        checkpoint=spec.checkpoint,
        anchors=write_anchors(spec.anchors),
        shift=spec.perturbation,
        reference=spec.reference,
        protocol=spec.protocol,
        thresholds=spec.thresholds,
        numeric_mode=write_mode(spec.numeric_mode),
    )
    return asked.to_message()


def write_response(job: Job) -> pb.ScoreCheckpointResponse:
    """The result of a finished job; equal records give equal bytes."""
    spec: Any = job.spec
    result = job.result or {}
    reference = result["reference"]
    verdict = dict(result["verdict"])
    thresholds = pb.Thresholds(ir=verdict.pop("t_ir"), sr=verdict.pop("t_sr"))
    outcome = OUTCOMES[verdict.pop("outcome")]
    return pb.ScoreCheckpointResponse(
        checkpoint=_write_score(result["checkpoint"], spec.named("checkpoint")),
        reference=reference and _write_score(reference, spec.named("reference")),
        verdict=pb.Verdict(outcome=outcome, thresholds=thresholds, **verdict),
        receipt=receipt_from_json(result["receipt"]).to_message(),
    )


def write_previews(previews: Sequence[AnchorPreview]) -> pb.PreviewAnchorsResponse:
    """The pictures of some anchors."""
    return pb.PreviewAnchorsResponse(
        previews=[
            pb.AnchorPreview(
                anchor=preview.anchor,
                clean=codec.write_tensor(preview.clean),
                perturbed=codec.write_tensor(preview.perturbed),
                partner=None if preview.partner is None else codec.write_tensor(preview.partner),
            )
            for preview in previews
        ]
    )


def _write_score(score: dict[str, Any], named: CheckpointRef) -> pb.CheckpointScore:
    return pb.CheckpointScore(
        checkpoint=named.to_message(),
        ir_raw=score["ir_raw"],
        sr=score["sr"],
        anchors=score["anchors"],
        eligible=score["eligible"],
        skipped=score["skipped"],
        median_latent_distance=score["median_latent_distance"],
        summaries=[pb.IrSummary(**row) for row in score["summaries"]],
        anchor_values=pb.AnchorValues(
            skip_reasons=unpack(score["skip_reasons"]).tolist(),
            **{name: codec.write_tensor(unpack(score[name])) for name in PER_ANCHOR},
        ),
    )


SCORE_WRITER = JobWriter(metadata=write_metadata, response=write_response)
