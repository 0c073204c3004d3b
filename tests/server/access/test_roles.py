"""Every method has a role or is open on purpose, and changes of what others use are logged."""

import pytest
from acpc.v1 import anchor_service_pb2, checkpoint_service_pb2
from acpc_server.access import (
    CHANGES,
    METHOD_ROLES,
    Principal,
    Role,
    is_local,
    needed_role,
    require_guarded,
    require_owner,
    require_role,
    subject,
)
from acpc_server.errors import FailedPrecondition, PermissionDenied
from acpc_server.rpc import reflection_versions
from google.longrunning import operations_pb2
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from methods import METHODS as OURS
from methods import methods_of

DESCRIPTORS = {**OURS, **methods_of(*reflection_versions())}
METHODS = sorted(DESCRIPTORS)


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


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("method", METHODS)
def test_a_role_opens_its_methods_and_those_of_the_roles_before_it(method: str, role: Role) -> None:
    order = ["read", "compute", "admin"]
    needed = METHOD_ROLES[method]
    if order.index(role) >= order.index(needed):
        require_role(Principal("ci", role), method)
    else:
        with pytest.raises(PermissionDenied, match=f"needs the role {needed}; ci has {role}"):
            require_role(Principal("ci", role), method)


def test_what_others_have_made_is_ended_by_them_or_administrators() -> None:
    for caller in (Principal("ann", Role.COMPUTE), Principal("root", Role.ADMIN)):
        require_owner(caller, "ann", "operations/1")
    for owner in ("ben", ""):
        with pytest.raises(PermissionDenied, match="operations/1 was made by"):
            require_owner(Principal("ann", Role.COMPUTE), owner, "operations/1")


def test_every_change_is_one_of_the_methods_and_names_its_subject() -> None:
    assert set(METHODS) >= CHANGES.keys()
    for method, field in CHANGES.items():
        assert field in DESCRIPTORS[method].input_type.fields_by_name
    kinds = {method: role for method, role in METHOD_ROLES.items() if role is Role.ADMIN}
    assert kinds.keys() <= CHANGES.keys()


@pytest.mark.parametrize(
    ("method", "message", "expected"),
    [
        (
            "/google.longrunning.Operations/CancelOperation",
            operations_pb2.CancelOperationRequest(name="x" * 999),
            "x" * 200,
        ),
        (
            "/acpc.v1.AnchorService/DeleteAnchorSet",
            anchor_service_pb2.DeleteAnchorSetRequest(digest="a"),
            "a",
        ),
        (
            "/acpc.v1.CheckpointService/UnloadCheckpoint",
            checkpoint_service_pb2.UnloadCheckpointRequest(checkpoint={"name": "lewm"}),
            "lewm",
        ),
    ],
)
def test_what_a_change_is_about(method: str, message: Message, expected: str) -> None:
    assert subject(method, message) == expected


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
