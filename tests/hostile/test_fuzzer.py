"""Law: whatever is sent to any method, the server has no fault of its own and stays as it was."""

from collections.abc import Iterator

import grpc
import pytest
from cases import LARGE, METHODS
from fuzzer import PRELOADED, fuzz
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from served_world import ServedWorld, never_written
from server_process import ServerProcess

REQUESTS = 2000


@pytest.fixture(scope="module")
def server(world: ServedWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    never_written(world.dataset_root / LARGE, 512)
    with world.server(tmp_path_factory.mktemp("state"), **PRELOADED) as process:
        yield process


def test_every_method_is_fuzzed(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        served = {
            f"/{service}/{method.name}"
            for service in database.get_services()
            for method in pool.FindServiceByName(service).methods
        }
    assert served == set(METHODS)


def test_two_thousand_requests(server: ServerProcess) -> None:
    report = fuzz(server, 11, range(REQUESTS))
    assert report.offences == []
    assert report.requests == REQUESTS
    # They go deep enough to be answered, and far enough to be rejected for many reasons.
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "CANCELLED", "FAILED_PRECONDITION"} <= set(
        report.codes
    )
    assert min(report.codes["OK"], report.codes["INVALID_ARGUMENT"]) > REQUESTS / 20
