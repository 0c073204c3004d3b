"""A whole server: what it takes while it leaves, and what it does not take at all."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import wire
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc.v1.scoring_service_pb2_grpc import ScoringServiceStub
from google.longrunning import operations_pb2, operations_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until


@pytest.fixture
def server(world: ServedWorld, tmp_path: Path) -> Iterator[ServerProcess]:
    with world.server(tmp_path, lame_duck_seconds=3600) as process:
        yield process
        assert process.bugs() == []


def test_readiness_goes_first_and_calls_are_taken_until_the_port_closes(
    server: ServerProcess,
) -> None:
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest()

        def ready() -> bool:
            status = health.Check(asked, timeout=GENEROUS_SECONDS).status
            return bool(status == health_pb2.HealthCheckResponse.SERVING)

        assert ready()
        os.kill(server.pid, signal.SIGHUP)
        os.kill(server.pid, signal.SIGTERM)
        wait_until(lambda: not ready())
        # Of its own: on connections that are there, calls are taken a moment longer.
        own = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(server.address, own) as fresh:
            stub = DiagnosticServiceStub(fresh)
            assert stub.ComparePair(wire.pair(), timeout=GENEROUS_SECONDS).results
        assert server.terminate() == 0, "the second signal ends the lame duck"


def test_waits_take_no_worker(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        request = wire.score(
            dataset={"dataset": "tworoom.h5", "task": "tworoom", "count": 30},
            protocol={"draws": 1000},
        )
        name = ScoringServiceStub(channel).ScoreCheckpoint(request, timeout=GENEROUS_SECONDS).name
        operations = operations_pb2_grpc.OperationsStub(channel)
        waits = [
            operations.WaitOperation.future(operations_pb2.WaitOperationRequest(name=name))
            for _ in range(90)
        ]
        answer = DiagnosticServiceStub(channel).ComparePair(wire.pair(), timeout=GENEROUS_SECONDS)
        assert answer.results
        assert not any(wait.done() for wait in waits)
        operations.CancelOperation(operations_pb2.CancelOperationRequest(name=name))
        for wait in waits:
            assert wait.result(timeout=GENEROUS_SECONDS).error.code == 1, "cancelled"
