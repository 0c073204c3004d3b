"""RunStudy."""

from __future__ import annotations

from typing import Any

from acpc.v1 import study_service_pb2 as pb
from acpc.v1.study_service_pb2_grpc import StudyServiceStub

from acpc_client.calls.base import Call, Method, identity, reference
from acpc_client.inputs import CheckpointRef, DatasetAnchors, NumericMode
from acpc_client.results import Operation
from acpc_client.study_inputs import Study

RUN = Method(StudyServiceStub, "RunStudy", timeout=30.0)


def run_study(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | str,
    study: Study,
    *,
    numeric_mode: NumericMode,
    request_id: str | None,
) -> Call[Operation]:
    """The call that submits a study.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    source: dict[str, Any] = (
        {"anchor_set": anchors} if isinstance(anchors, str) else {"dataset": anchors.to_message()}
    )
    request = pb.RunStudyRequest(
        request_id=identity(request_id),
        checkpoint=reference(checkpoint),
        **source,
        **study.to_fields(),
        numeric_mode=numeric_mode.wire,
    )
    return Call(RUN, request, Operation.from_message, request.request_id)
