"""Every method has a role or is open on purpose, and changes of what others use are logged."""

import pytest
from acpc_server.access import (
    CHANGES,
    METHOD_ROLES,
    Role,
    is_local,
    needed_role,
    require_guarded,
)
from acpc_server.errors import FailedPrecondition
from acpc_server.rpc import reflection_versions
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


def test_a_method_that_nobody_thought_of_is_for_administrators() -> None:
    assert needed_role("/acpc.v1.NewService/New") is Role.ADMIN
    assert needed_role("/grpc.health.v1.HealthEvil/Check") is Role.ADMIN


def test_every_change_is_one_of_the_methods_and_names_its_subject() -> None:
    assert set(METHODS) >= CHANGES.keys()
    for method, field in CHANGES.items():
        assert field in DESCRIPTORS[method].input_type.fields_by_name
    kinds = {method: role for method, role in METHOD_ROLES.items() if role is Role.ADMIN}
    assert kinds.keys() <= CHANGES.keys()


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
