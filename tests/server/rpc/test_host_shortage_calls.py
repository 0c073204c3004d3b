"""A call on a host that runs short is rejected, to be tried again; it is no bug."""

from __future__ import annotations

import errno

import pytest
from acpc_server.rpc import HealthService
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served_door import channel, served
from wire import refusal


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.EMFILE, "files"), RuntimeError("can't start new thread")],
)
def test_a_shortage_of_the_host_is_told_as_one(error: Exception) -> None:
    class Short(HealthService):
        async def Check(self, *_: object) -> object:
            raise error

    service = health_pb2.DESCRIPTOR.services_by_name["Health"]
    with served({service: Short()}) as address, channel(address) as caller:
        check = health_pb2_grpc.HealthStub(caller).Check
        told = refusal(lambda: check(health_pb2.HealthCheckRequest()))
    assert (told.code, told.reason) == ("RESOURCE_EXHAUSTED", "HOST_SHORTAGE")
    assert told.retry_after
