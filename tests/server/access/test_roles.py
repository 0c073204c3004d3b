"""Every method has a role or is open on purpose, and what changes something is audited."""

import pytest
from acpc.v1 import anchor_service_pb2, checkpoint_service_pb2, scoring_service_pb2
from acpc_server.access import (
    AUDITED,
    METHOD_ROLES,
    Role,
    is_local,
    needed_role,
    require_guarded,
    subject,
)
from acpc_server.errors import FailedPrecondition
from acpc_server.rpc import reflection_versions
from google.longrunning import operations_pb2
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from methods import METHODS as OURS
from methods import methods_of

METHODS = sorted([*OURS, *methods_of(*reflection_versions())])


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_role_of_its_own(method: str) -> None:
    assert method in METHOD_ROLES, "say in access/roles.py who may call it"
    assert needed_role(method) is METHOD_ROLES[method]


def test_the_table_names_no_method_that_is_gone() -> None:
    assert sorted(METHOD_ROLES) == METHODS


def test_only_health_is_open() -> None:
    for method in methods_of(health_pb2.DESCRIPTOR):
        assert needed_role(method) is None


def test_a_method_that_nobody_thought_of_is_for_administrators() -> None:
    assert needed_role("/acpc.v1.NewService/New") is Role.ADMIN
    assert needed_role("/grpc.health.v1.HealthEvil/Check") is Role.ADMIN


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


LOCAL = ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1", "unix:/run/a"]
OPEN = [
    "0.0.0.0",  # noqa: S104
    "::",
    "[::]",
    "10.0.0.7",
    "192.168.1.2",
    "fe80::1%eth0",
    "no-such-name.invalid",
    "",
]


@pytest.mark.parametrize("host", LOCAL)
def test_this_machine_alone(host: str) -> None:
    assert is_local(host)
    require_guarded(host, authenticated=False, encrypted=False, insecure=False)


@pytest.mark.parametrize("host", [*OPEN, "::ffff:10.0.0.7", "1"])
def test_reachable_from_elsewhere(host: str) -> None:
    assert not is_local(host)
    with pytest.raises(FailedPrecondition) as caught:
        require_guarded(host, authenticated=False, encrypted=True, insecure=False)
    for way in ("--host 127.0.0.1", "--keys-file", "--insecure"):
        assert way in caught.value.message
    with pytest.raises(FailedPrecondition, match="in the clear"):
        require_guarded(host, authenticated=True, encrypted=False, insecure=False)
    require_guarded(host, authenticated=True, encrypted=True, insecure=False)
    require_guarded(host, authenticated=False, encrypted=False, insecure=True)
