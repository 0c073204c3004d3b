"""A deadline that passes is counted as one; a call that waits for others is rejected before."""

import threading

import grpc
import pytest
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1 import checkpoint_service_pb2_grpc as pb_grpc
from acpc.v1 import dataset_service_pb2
from acpc.v1.dataset_service_pb2 import ListDatasetsRequest
from acpc.v1.dataset_service_pb2_grpc import DatasetServiceStub
from acpc_server.errors import ResourceExhausted
from acpc_server.observe import Metrics
from acpc_server.rpc import Call
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_status import rpc_status
from served_door import channel, served
from waiting import GENEROUS_SECONDS, wait_until

DATASETS = dataset_service_pb2.DESCRIPTOR.services_by_name["DatasetService"]
SERVICE = pb.DESCRIPTOR.services_by_name["CheckpointService"]


class Blocked:
    """Answers once it is let go, whatever it is asked."""

    def __init__(self, *, waits: bool = False) -> None:
        self.asked, self.free = threading.Event(), threading.Event()
        self.left = threading.Event()
        self._waits = waits

    def __getattr__(self, name: str) -> object:
        return self._wait

    def _wait(self, request: object, call: Call) -> Message:
        call.life.waits_for_others(self._waits)
        call.life.add_callback(self.left.set)
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


@pytest.mark.parametrize("threads", [2, 1])
def test_a_call_that_waits_for_others_is_rejected_before_its_deadline(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it waits at work, or in line for a thread."""
    monkeypatch.setattr("acpc_server.rpc.call.LAST_SHARE", 0.999)
    monkeypatch.setattr("acpc_server.rpc.call.LAST_SECONDS", 2 * GENEROUS_SECONDS)
    first, second = Blocked(), Blocked(waits=True)
    others = {SERVICE: first, DATASETS: second}
    with served(others, threads=threads) as address, channel(address) as opened:
        ahead = pb_grpc.CheckpointServiceStub(opened).ListCheckpoints.future(
            pb.ListCheckpointsRequest(), timeout=2 * GENEROUS_SECONDS
        )
        wait_until(first.asked.is_set, "the call did not arrive")
        late = DatasetServiceStub(opened).ListDatasets.future(
            ListDatasetsRequest(), timeout=GENEROUS_SECONDS
        )
        assert late.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        status = rpc_status.from_call(late)
        reason, hint = ErrorInfo(), RetryInfo()
        assert any(detail.Unpack(reason) for detail in status.details)
        assert any(detail.Unpack(hint) for detail in status.details)
        assert reason.reason == "DEADLINE_CANNOT_BE_MET"
        assert hint.retry_delay.ToTimedelta()
        assert threads == 1 or second.left.wait(GENEROUS_SECONDS), "its work is told to stop"
        assert not ahead.done(), "one that waits for nobody has all of its time"
        first.free.set()
        second.free.set()
        ahead.result(GENEROUS_SECONDS)


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
