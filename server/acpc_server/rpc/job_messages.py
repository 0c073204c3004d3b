"""A job of any kind as an Operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from acpc.contract import JobState, Timing
from google.longrunning import operations_pb2
from google.protobuf import timestamp_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2

from acpc_server.jobs import Job, JobFailure
from acpc_server.rpc.status import DOMAIN, plain_status

PREFIX = "operations/"


@dataclass(frozen=True)
class JobWriter:
    """The messages of one kind of job: its metadata, and the response of one that succeeded."""

    metadata: Callable[[Job], Message]
    response: Callable[[Job], Message]


class OperationWriter:
    """Writes jobs as Operations.

    Args:
        writers: For each kind of job, by its name.
    """

    def __init__(self, writers: Mapping[str, JobWriter]) -> None:
        self._writers = writers

    @property
    def kinds(self) -> list[str]:
        """Names of the kinds of job."""
        return list(self._writers)

    def write(self, job: Job) -> operations_pb2.Operation:
        """The Operation message of a job; a listed one has no response."""
        writer = self._writers[job.kind]
        operation = operations_pb2.Operation(name=f"{PREFIX}{job.job_id}", done=job.state.done)
        operation.metadata.Pack(writer.metadata(job), deterministic=True)
        if job.state is JobState.SUCCEEDED and job.result is not None:
            operation.response.Pack(writer.response(job), deterministic=True)
        elif job.state is JobState.CANCELLED:
            operation.error.CopyFrom(plain_status("CANCELLED", "the job was cancelled", []))
        elif job.failure is not None:
            operation.error.CopyFrom(_write_failure(job.failure))
        return operation


def write_life(job: Job) -> dict[str, Any]:
    """The fields every kind's metadata message has: state, progress, attempts and times."""
    fields: dict[str, Any] = {
        "state": job.state.wire,
        "create_time": _timestamp(job.created),
        "progress": job.progress.to_message(),
        "attempts": job.attempts,
    }
    if job.started is not None:
        fields["start_time"] = _timestamp(job.started)
    if job.ended is not None:
        started = job.started or job.ended
        fields["end_time"] = _timestamp(job.ended)
        fields["timing"] = Timing(
            started - job.created, job.ended - started, job.ended - job.created
        ).to_message()
    return fields


def _write_failure(failure: JobFailure) -> Any:  # noqa: ANN401
    info = error_details_pb2.ErrorInfo(reason=failure.reason, domain=DOMAIN)
    return plain_status(failure.code, failure.message, [info])


def _timestamp(seconds: float) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromMilliseconds(round(seconds * 1000))
    return stamp
