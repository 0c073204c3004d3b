"""RunStudy."""

from __future__ import annotations

from typing import Unpack

from acpc.contract import AnchorSet, CheckpointRef, DatasetAnchors, Study, StudyRequest
from acpc.v1.study_service_pb2_grpc import StudyServiceStub

from acpc_client.calls.base import common, send, source
from acpc_client.calls.call import Call, Method
from acpc_client.calls.options import CallOptions, check_options
from acpc_client.results import Operation

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
    asked = StudyRequest(**common(checkpoint, options), anchors=source(anchors), study=study)
    return send(RUN, asked, Operation.from_message)
