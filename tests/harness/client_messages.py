"""Messages of the contract that the client's tests answer with."""

from typing import Any

import grpc
import numpy as np
from acpc.v1 import receipt_pb2, study_service_pb2
from acpc.v1 import scoring_service_pb2 as pb
from google.longrunning import operations_pb2
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from wire import tensor

RECEIPT = receipt_pb2.Receipt(
    checkpoint_digest="c" * 64,
    anchors_digest="a" * 64,
    code_version="0.1.0",
    numeric_mode=receipt_pb2.NUMERIC_MODE_FP32,
    device="cpu",
)


def status(code: grpc.StatusCode, message: str, *details: Any) -> status_pb2.Status:
    packed = []
    for detail in details:
        item = any_pb2.Any()
        item.Pack(detail)
        packed.append(item)
    return status_pb2.Status(code=code.value[0], message=message, details=packed)


def retry_info(seconds: float) -> error_details_pb2.RetryInfo:
    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromNanoseconds(round(seconds * 1e9))
    return info


def sure(
    outcome: int,
    *,
    p_passed: float = 1.0,
    p_failed: float = 1.0,
    doubt: int = 0,
    anchors_to_decide: int | None = None,
) -> pb.Evidence:
    """Evidence at 95 % with this confident outcome; its intervals are always the same."""
    intervals = {
        name: {"lower": lower, "upper": upper, "method": "made up"}
        for name, lower, upper in (
            ("ir_raw", 0.4, 0.6),
            ("reference_ir_raw", 3.0, 5.0),
            ("ir_relative", 0.1, 0.15),
            ("sr", 0.93, 0.99),
            ("reference_sr", 0.5, 0.7),
            ("score", -0.02, 0.04),
            ("delta_score", 2.0, 3.0),
        )
    }
    return pb.Evidence(
        confidence=0.95,
        confident_outcome=outcome,
        doubt=doubt,
        anchors_to_decide=anchors_to_decide,
        trajectories=2,
        resamples=2000,
        p_passed=p_passed,
        p_failed=p_failed,
        **intervals,
    )


def score_response(
    outcome: int,
    *,
    evidence: pb.Evidence | None = None,
    sr_passed: bool = True,
    with_reference: bool = True,
    rounding_floor: float | None = None,
) -> pb.ScoreCheckpointResponse:
    arrays = {
        "anchor_ids": [7, 11],
        "radius": [0.25, 0.5],
        "motion_scale": [1.0, 2.0],
        "different_state_distance": [3.0, np.nan],
        "partner": [1, -1],
        "draw_radius": [[0.25, 0.25], [0.5, 0.5]],
        "step_radius": [[0.125, 0.375], [0.5, 0.5]],
    }
    values = {name: tensor(np.array(array)) for name, array in arrays.items()}
    reasons = [pb.SKIP_REASON_UNSPECIFIED, pb.SKIP_REASON_NONE_IN_REACH]
    side = pb.CheckpointScore(
        checkpoint={"name": "trained"},
        ir_raw=0.5,
        sr=0.97,
        anchors=2,
        eligible=1,
        skipped=1,
        anchor_values={**values, "skip_reasons": reasons},
        rounding_floor=rounding_floor,
    )
    verdict = {
        "outcome": outcome,
        "sr_passed": sr_passed,
        "thresholds": {"ir": 0.3, "sr": 0.95},
        "summary": "what decided the outcome",
    }
    answer = pb.ScoreCheckpointResponse(
        checkpoint=side, verdict=verdict, receipt=RECEIPT, evidence=evidence
    )
    if with_reference:
        answer.reference.CopyFrom(side)
        answer.verdict.ir_relative = 0.125
        answer.verdict.score = 0.02
    return answer


def operation(
    name: str,
    completed: int = 0,
    *,
    state: int = pb.JOB_STATE_RUNNING,
    response: pb.ScoreCheckpointResponse | None = None,
    error: status_pb2.Status | None = None,
    **told: Any,
) -> operations_pb2.Operation:
    phase = "encoding anchors"
    metadata = pb.ScoreCheckpointMetadata(
        state=state,
        attempts=1,
        checkpoint={"name": "trained"},
        progress={"phase": phase, "completed": completed, "total": 4, "seconds_left": 75.0},
        **told,
    )
    message = operations_pb2.Operation(name=name, done=response is not None or error is not None)
    message.metadata.Pack(metadata)
    if response is not None:
        message.response.Pack(response)
    if error is not None:
        message.error.CopyFrom(error)
    return message


def study_response(
    request: study_service_pb2.RunStudyRequest, columns: dict[str, np.ndarray]
) -> study_service_pb2.RunStudyResponse:
    return study_service_pb2.RunStudyResponse(
        checkpoint=request.checkpoint,
        columns=[{"name": name, "values": tensor(values)} for name, values in columns.items()],
        arrays=[{"name": "encoder_clean", "values": tensor(np.ones((2, 3), np.float32))}],
        receipt=RECEIPT,
        request=request,
    )


def study_operation(
    name: str,
    request: study_service_pb2.RunStudyRequest,
    *,
    response: study_service_pb2.RunStudyResponse | None = None,
) -> operations_pb2.Operation:
    metadata = study_service_pb2.RunStudyMetadata(
        state=pb.JOB_STATE_RUNNING, attempts=2, request=request
    )
    message = operations_pb2.Operation(name=name, done=response is not None)
    message.metadata.Pack(metadata)
    if response is not None:
        message.response.Pack(response)
    return message
