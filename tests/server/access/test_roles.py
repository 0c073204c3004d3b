"""Every method of every service has a role, or is open on purpose."""

from __future__ import annotations

import pytest
from acpc.v1 import (
    anchor_service_pb2,
    checkpoint_service_pb2,
    dataset_service_pb2,
    diagnostic_service_pb2,
    scoring_service_pb2,
    study_service_pb2,
)
from acpc_server.access import METHOD_ROLES, Role, needed_role
from acpc_server.rpc import reflection_versions
from google.longrunning import operations_pb2
from grpc_health.v1 import health_pb2

FILES = (
    anchor_service_pb2,
    checkpoint_service_pb2,
    dataset_service_pb2,
    diagnostic_service_pb2,
    scoring_service_pb2,
    study_service_pb2,
    operations_pb2,
)
DESCRIPTORS = (*(file.DESCRIPTOR for file in FILES), *reflection_versions())
METHODS = sorted(
    f"/{service.full_name}/{method.name}"
    for file in DESCRIPTORS
    for service in file.services_by_name.values()
    for method in service.methods
)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_role_of_its_own(method: str) -> None:
    assert method in METHOD_ROLES, "say in access/roles.py who may call it"
    assert needed_role(method) is METHOD_ROLES[method]


def test_the_table_names_no_method_that_is_gone() -> None:
    assert sorted(METHOD_ROLES) == METHODS


def test_only_health_is_open() -> None:
    for service in health_pb2.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            assert needed_role(f"/{service.full_name}/{method.name}") is None


def test_a_method_that_nobody_thought_of_is_for_administrators() -> None:
    assert needed_role("/acpc.v1.NewService/New") is Role.ADMIN
    assert needed_role("/grpc.health.v1.HealthEvil/Check") is Role.ADMIN
