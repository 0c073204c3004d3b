"""What audit lines say that a call was about."""

from __future__ import annotations

import pytest
from acpc.v1 import anchor_service_pb2, checkpoint_service_pb2, scoring_service_pb2
from acpc_server.access import AUDITED, METHOD_ROLES, Role, subject
from google.longrunning import operations_pb2
from google.protobuf.message import Message


def test_every_audited_method_exists() -> None:
    assert set(METHOD_ROLES) >= AUDITED


def test_methods_that_only_measure_or_read_are_not_audited() -> None:
    rest = {method: role for method, role in METHOD_ROLES.items() if method not in AUDITED}
    assert set(rest.values()) == {Role.READ, Role.PLAN, Role.UPLOAD}
    assert [m for m, role in rest.items() if role is Role.UPLOAD] == [
        "/acpc.v1.AnchorService/GetUpload"
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            scoring_service_pb2.ScoreCheckpointRequest(
                checkpoint={"name": "lewm", "digest": "d"}, anchor_set="a"
            ),
            {"checkpoint": "lewm", "checkpoint_digest": "d", "anchor_set": "a"},
        ),
        (operations_pb2.Operation(name="operations/1"), {"operation": "operations/1"}),
        (operations_pb2.CancelOperationRequest(name="x" * 999), {"operation": "x" * 200}),
        (anchor_service_pb2.DeleteAnchorSetRequest(digest="a"), {"anchor_set": "a"}),
        (anchor_service_pb2.UploadAnchorsResponse(anchor_set={"digest": "a"}), {"anchor_set": "a"}),
        (
            checkpoint_service_pb2.UnloadCheckpointRequest(checkpoint={"name": "lewm"}),
            {"checkpoint": "lewm"},
        ),
        (anchor_service_pb2.DeleteAnchorSetResponse(), {}),
    ],
)
def test_what_a_call_is_about(message: Message, expected: dict[str, str]) -> None:
    assert subject(message) == expected
