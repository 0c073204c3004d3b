"""RunStudy."""

from __future__ import annotations

from acpc.contract import NumericMode
from acpc.v1 import study_service_pb2 as pb
from acpc.v1.study_service_pb2_grpc import StudyServiceStub

from acpc_client.calls.base import Call, Method, anchor_source, identity, reference
from acpc_client.inputs import CheckpointRef, DatasetAnchors
from acpc_client.results import AnchorSet, Operation
from acpc_client.study_inputs import Study

RUN = Method(StudyServiceStub, "RunStudy", timeout=30.0)


def run_study(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | AnchorSet | str,
    study: Study,
    *,
    numeric_mode: NumericMode,
    request_id: str | None,
) -> Call[Operation]:
    """The call that submits a study.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    request = pb.RunStudyRequest(
        request_id=identity(request_id),
        checkpoint=reference(checkpoint),
        **anchor_source(anchors),
        **study.to_fields(),
        numeric_mode=numeric_mode.wire,
    )
    return Call(RUN, request, Operation.from_message, request.request_id)
