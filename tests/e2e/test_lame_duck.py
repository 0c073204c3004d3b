"""A whole server: what it takes while it leaves."""

import os
import signal
from pathlib import Path

import grpc
import wire
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served_world import ServedWorld
from waiting import GENEROUS_SECONDS, wait_until


def test_readiness_goes_first_and_calls_are_taken_until_the_port_closes(
    world: ServedWorld, tmp_path: Path
) -> None:
    with (
        world.server(tmp_path, lame_duck_seconds=3600) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
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
        assert server.bugs() == []
