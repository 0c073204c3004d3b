"""google.longrunning.Operations, served as it stands, over the jobs."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
from acpc.v1 import receipt_pb2
from acpc.v1 import scoring_service_pb2 as pb
from google.longrunning import operations_pb2, operations_pb2_grpc
from google.protobuf import empty_pb2, timestamp_pb2
from google.rpc import error_details_pb2

from acpc_server.diagnostics import CheckpointName, Receipt
from acpc_server.engine import NumericMode
from acpc_server.errors import InvalidArgument, NotFound
from acpc_server.jobs import Job, JobFailure, JobService, JobState
from acpc_server.rpc import codec
from acpc_server.rpc.paging import read_page, write_token
from acpc_server.rpc.status import DOMAIN, plain_status

PREFIX = "operations/"
WAIT_SECONDS = 60.0
STATES = {
    JobState.QUEUED: pb.JOB_STATE_QUEUED,
    JobState.RUNNING: pb.JOB_STATE_RUNNING,
    JobState.SUCCEEDED: pb.JOB_STATE_SUCCEEDED,
    JobState.FAILED: pb.JOB_STATE_FAILED,
    JobState.CANCELLED: pb.JOB_STATE_CANCELLED,
}
OUTCOMES = {
    "passed": pb.OUTCOME_PASSED,
    "failed": pb.OUTCOME_FAILED,
    "inconclusive": pb.OUTCOME_INCONCLUSIVE,
}


class OperationsServicer(operations_pb2_grpc.OperationsServicer):  # type: ignore[misc]
    """Get, list, cancel, wait for and delete jobs."""

    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs

    def GetOperation(
        self, request: operations_pb2.GetOperationRequest, context: grpc.ServicerContext
    ) -> operations_pb2.Operation:
        """One operation."""
        return write_operation(self._jobs.get(read_name(request.name)))

    def ListOperations(
        self, request: operations_pb2.ListOperationsRequest, context: grpc.ServicerContext
    ) -> operations_pb2.ListOperationsResponse:
        """A page of operations, newest first; ``filter`` may be ``state=<state>``."""
        if request.name not in ("", "operations"):
            raise InvalidArgument("name", f"{request.name!r}; operations live in 'operations'")
        page = read_page(request.page_size, request.page_token)
        rows = self._jobs.list(page.start, len(page) + 1, _read_filter(request.filter))
        more = page.stop if len(rows) > len(page) else None
        return operations_pb2.ListOperationsResponse(
            operations=[write_operation(job) for job in rows[: len(page)]],
            next_page_token=write_token(more),
        )

    def CancelOperation(
        self, request: operations_pb2.CancelOperationRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Stop a job at its next chunk."""
        self._jobs.cancel(read_name(request.name))
        return empty_pb2.Empty()

    def DeleteOperation(
        self, request: operations_pb2.DeleteOperationRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Forget a finished job."""
        self._jobs.delete(read_name(request.name))
        return empty_pb2.Empty()

    def WaitOperation(
        self, request: operations_pb2.WaitOperationRequest, context: grpc.ServicerContext
    ) -> operations_pb2.Operation:
        """The operation once it is done, or as it is when the timeout passes."""
        seconds = WAIT_SECONDS
        if request.HasField("timeout"):
            seconds = request.timeout.seconds + request.timeout.nanos / 1e9
            if seconds < 0:
                raise InvalidArgument("timeout", f"{seconds} s is negative")
        remaining = context.time_remaining()
        if remaining is not None:
            # Answer before the caller's own deadline rather than miss it.
            seconds = min(seconds, max(0.0, 0.9 * remaining))
        job = self._jobs.wait(
            read_name(request.name), min(seconds, WAIT_SECONDS), context.is_active
        )
        return write_operation(job)


def read_name(name: str) -> str:
    """The job id of ``operations/<id>``; InvalidArgument for any other name."""
    job_id = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or not job_id:
        raise InvalidArgument("name", f"{name!r}; an operation is named operations/<id>")
    if len(job_id) > 64 or not job_id.isascii() or not job_id.isprintable():
        raise NotFound("no operation has that name")
    return job_id


def _read_filter(text: str) -> JobState | None:
    if not text:
        return None
    key, _, value = (part.strip() for part in text.partition("="))
    states = {state.value: state for state in JobState}
    if key != "state" or value.lower() not in states:
        raise InvalidArgument(
            "filter", f"{text!r}; filter by state=<state> with one of {', '.join(states)}"
        )
    return states[value.lower()]


def write_operation(job: Job) -> operations_pb2.Operation:
    """The Operation message of a job."""
    operation = operations_pb2.Operation(name=f"{PREFIX}{job.job_id}", done=job.state.done)
    operation.metadata.Pack(_write_metadata(job), deterministic=True)
    if job.state is JobState.SUCCEEDED and job.result is not None:
        operation.response.Pack(write_result(job), deterministic=True)
    elif job.state is JobState.CANCELLED:
        operation.error.CopyFrom(plain_status("CANCELLED", "the job was cancelled", []))
    elif job.failure is not None:
        operation.error.CopyFrom(_write_failure(job.failure))
    return operation


def _write_failure(failure: JobFailure) -> Any:  # noqa: ANN401
    info = error_details_pb2.ErrorInfo(reason=failure.reason, domain=DOMAIN)
    return plain_status(failure.code, failure.message, [info])


def _write_metadata(job: Job) -> pb.ScoreCheckpointMetadata:
    metadata = pb.ScoreCheckpointMetadata(
        checkpoint=_write_name(job.plan.checkpoint),
        create_time=_timestamp(job.created),
        progress=pb.Progress(
            phase=job.progress.phase,
            completed=job.progress.completed,
            total=job.progress.total,
            seconds_left=job.progress.seconds_left,
        ),
        attempts=job.attempts,
        state=STATES[job.state],
    )
    if job.started is not None:
        metadata.start_time.CopyFrom(_timestamp(job.started))
    if job.ended is not None:
        metadata.end_time.CopyFrom(_timestamp(job.ended))
        metadata.timing.CopyFrom(
            codec.write_timing(
                (job.started or job.ended) - job.created,
                job.ended - (job.started or job.ended),
                job.ended - job.created,
            )
        )
    return metadata


def _timestamp(seconds: float) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromMilliseconds(round(seconds * 1000))
    return stamp


def _write_name(named: CheckpointName) -> receipt_pb2.CheckpointRef:
    return receipt_pb2.CheckpointRef(name=named.name, weights=named.weights, digest=named.digest)


def write_result(job: Job) -> pb.ScoreCheckpointResponse:
    """The result of a finished job; equal records give equal bytes."""
    result = job.result or {}
    receipt = dict(result["receipt"])
    receipt["numeric_mode"] = NumericMode(receipt["numeric_mode"])
    reference = result["reference"]
    verdict = dict(result["verdict"])
    thresholds = pb.Thresholds(ir=verdict.pop("t_ir"), sr=verdict.pop("t_sr"))
    outcome = OUTCOMES[verdict.pop("outcome")]
    return pb.ScoreCheckpointResponse(
        checkpoint=_write_score(result["checkpoint"], job.plan.named("checkpoint")),
        reference=reference and _write_score(reference, job.plan.named("reference")),
        verdict=pb.Verdict(outcome=outcome, thresholds=thresholds, **verdict),
        receipt=codec.write_receipt(Receipt(**receipt)),
    )


def _write_score(score: dict[str, Any], named: CheckpointName) -> pb.CheckpointScore:
    distances = [np.nan if d is None else d for d in score["different_state_distance"]]
    return pb.CheckpointScore(
        checkpoint=_write_name(named),
        ir_raw=score["ir_raw"],
        sr=score["sr"],
        anchors=score["anchors"],
        eligible=score["eligible"],
        skipped=score["skipped"],
        median_latent_distance=score["median_latent_distance"],
        summaries=[pb.IrSummary(**row) for row in score["summaries"]],
        anchor_values=pb.AnchorValues(
            anchor_ids=codec.write_tensor(np.array(score["anchor_ids"], np.int64)),
            radius=codec.write_tensor(np.array(score["radius"], np.float64)),
            motion_scale=codec.write_tensor(np.array(score["motion_scale"], np.float64)),
            different_state_distance=codec.write_tensor(np.array(distances, np.float64)),
            partner=codec.write_tensor(np.array(score["partner"], np.int64)),
            draw_radius=codec.write_tensor(np.array(score["draw_radius"], np.float64)),
        ),
    )
