"""RunStudy."""

from __future__ import annotations

from typing import Unpack

from acpc.v1 import study_service_pb2 as pb
from acpc.v1.study_service_pb2_grpc import StudyServiceStub

from acpc_client.calls.base import Call, Method, job_fields
from acpc_client.calls.options import CallOptions, check_options
from acpc_client.inputs import CheckpointRef, DatasetAnchors
from acpc_client.results import AnchorSet, Operation
from acpc_client.study_inputs import Study

RUN = Method(StudyServiceStub, "RunStudy", timeout=30.0)


def run_study(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | AnchorSet | str,
    study: Study,
    **options: Unpack[CallOptions],
) -> Call[Operation]:
    """The call that submits a study.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
        TypeError: An unknown option.
    """
    check_options(options, CallOptions)
    request = pb.RunStudyRequest(**job_fields(checkpoint, anchors, options), **study.to_fields())
    return Call(RUN, request, Operation.from_message, request.request_id)
