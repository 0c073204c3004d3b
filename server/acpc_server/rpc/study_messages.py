"""Plans and results of studies as messages."""

from __future__ import annotations

from typing import Any

from acpc.v1 import study_service_pb2 as pb

from acpc_server.encoding import Receipt
from acpc_server.engine import NumericMode
from acpc_server.jobs import Job
from acpc_server.rpc import codec
from acpc_server.rpc.job_messages import JobWriter, write_life
from acpc_server.rpc.sources import write_source
from acpc_server.rpc.study_requests import write_study
from acpc_server.studies import Arrays, StudyPlan, Table


def write_request(plan: StudyPlan) -> pb.RunStudyRequest:
    """The request that gives this plan: defaults filled in, digests pinned, no request id."""
    return pb.RunStudyRequest(
        checkpoint=codec.write_checkpoint(plan.checkpoint),
        **write_source(plan.anchors),
        **write_study(plan.study),
        numeric_mode=codec.WIRE_MODES[plan.numeric_mode],
    )


def write_metadata(job: Job) -> pb.RunStudyMetadata:
    """What is measured and how far it is."""
    plan: Any = job.plan
    return pb.RunStudyMetadata(request=write_request(plan), **write_life(job))


def write_response(job: Job) -> pb.RunStudyResponse:
    """The result of a finished study; equal records give equal bytes."""
    plan: Any = job.plan
    result = job.result or {}
    table = Table.from_json(result)
    receipt = dict(result["receipt"])
    receipt["numeric_mode"] = NumericMode(receipt["numeric_mode"])
    return pb.RunStudyResponse(
        checkpoint=codec.write_checkpoint(plan.checkpoint),
        columns=_write(table.columns),
        arrays=_write(table.arrays),
        receipt=codec.write_receipt(Receipt(**receipt)),
        request=write_request(plan),
    )


def _write(arrays: Arrays) -> list[pb.NamedTensor]:
    return [
        pb.NamedTensor(name=name, values=codec.write_tensor(values))
        for name, values in arrays.items()
    ]


STUDY_WRITER = JobWriter(metadata=write_metadata, response=write_response)
