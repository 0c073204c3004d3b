"""A deadline that passes is counted as one; a call that would be late is rejected unread."""

import threading

import grpc
import pytest
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1 import checkpoint_service_pb2_grpc as pb_grpc
from acpc_server.errors import ResourceExhausted
from acpc_server.observe import Metrics
from acpc_server.rpc import Call
from google.protobuf.message import Message
from served_door import channel, served
from waiting import GENEROUS_SECONDS, wait_until

SERVICE = pb.DESCRIPTOR.services_by_name["CheckpointService"]


class Blocked:
    """Answers once it is let go."""

    def __init__(self) -> None:
        self.asked, self.free = threading.Event(), threading.Event()

    def ListCheckpoints(self, request: object, call: Call) -> Message:
        self.asked.set()
        self.free.wait(GENEROUS_SECONDS)
        return pb.ListCheckpointsResponse()


def _codes(metrics: Metrics) -> dict[str, float]:
    return {
        sample.labels["grpc_code"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "grpc_server_handled_total"
    }


@pytest.mark.parametrize(("leaves", "code"), [(False, "DEADLINE_EXCEEDED"), (True, "CANCELLED")])
def test_a_missed_deadline_is_told_from_a_caller_that_left(leaves: bool, code: str) -> None:
    metrics, blocked = Metrics(), Blocked()
    with served({SERVICE: blocked}, metrics=metrics) as address, channel(address) as opened:
        stub = pb_grpc.CheckpointServiceStub(opened)
        seconds = GENEROUS_SECONDS if leaves else 0.3
        asked = stub.ListCheckpoints.future(pb.ListCheckpointsRequest(), timeout=seconds)
        if leaves:
            wait_until(blocked.asked.is_set, "the call did not arrive")
            asked.cancel()
        else:
            assert asked.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: _codes(metrics), "the call did not end")
        blocked.free.set()
    assert _codes(metrics) == {code: 1}


def test_a_call_that_would_be_rejected_is_before_its_message_is_read() -> None:
    def full(call: Call) -> None:
        raise ResourceExhausted("full", reason="SERVER_BUSY", retry_after=1.0)

    with served({SERVICE: Blocked()}, check=full) as address, channel(address) as opened:
        # No message follows.
        ask = opened.stream_unary("/acpc.v1.CheckpointService/ListCheckpoints")
        silent = threading.Event()
        call = ask.future(iter(lambda: silent.wait(GENEROUS_SECONDS) or b"", b""))
        assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        silent.set()
