"""Specs and results of studies as messages."""

from __future__ import annotations

from typing import Any

from acpc.contract import StudyRequest
from acpc.v1 import study_service_pb2 as pb

from acpc_server.encoding import receipt_from_json
from acpc_server.jobs import Job
from acpc_server.rpc import codec
from acpc_server.rpc.job_messages import JobWriter, write_life
from acpc_server.rpc.request import write_anchors, write_mode
from acpc_server.studies import Arrays, StudySpec, Table


def write_request(spec: StudySpec) -> pb.RunStudyRequest:
    """The request of this job: defaults filled in, digests pinned, no request id."""
    asked = StudyRequest(
        checkpoint=spec.checkpoint,
        anchors=write_anchors(spec.anchors),
        study=spec.study,
        numeric_mode=write_mode(spec.numeric_mode),
    )
    return asked.to_message()


def write_metadata(job: Job) -> pb.RunStudyMetadata:
    """What is measured and how far it is."""
    spec: Any = job.spec
    return pb.RunStudyMetadata(request=write_request(spec), **write_life(job))


def write_response(job: Job) -> pb.RunStudyResponse:
    """The result of a finished study; equal records give equal bytes."""
    spec: Any = job.spec
    result = job.result or {}
    table = Table.from_json(result)
    return pb.RunStudyResponse(
        checkpoint=spec.checkpoint.to_message(),
        columns=_write(table.columns),
        arrays=_write(table.arrays),
        receipt=receipt_from_json(result["receipt"]).to_message(),
        request=write_request(spec),
    )


def _write(arrays: Arrays) -> list[pb.NamedTensor]:
    return [
        pb.NamedTensor(name=name, values=codec.write_tensor(values))
        for name, values in arrays.items()
    ]


STUDY_WRITER = JobWriter(metadata=write_metadata, response=write_response)
