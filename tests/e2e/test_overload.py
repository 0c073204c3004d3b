"""A server with more calls than it can answer refuses at once, and keeps answering its probes."""

from __future__ import annotations

from pathlib import Path

import grpc
import wire
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served_world import write_world
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

CALLS, DRAWS = 150, 200


def test_refusals_are_typed_probes_answer_and_service_returns(tmp_path: Path) -> None:
    world = write_world(tmp_path)
    roots = (world.checkpoint_root, world.dataset_root, world.state_dir)
    with (
        ServerProcess(*roots, rpc_threads=4) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = DiagnosticServiceStub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        small = wire.pair()
        stub.ComparePair(small, timeout=GENEROUS_SECONDS)
        large = wire.pair()
        large.perturbations.draws = DRAWS
        calls = [stub.ComparePair.future(large, timeout=GENEROUS_SECONDS) for _ in range(CALLS)]
        probe = health.Check(health_pb2.HealthCheckRequest(), timeout=GENEROUS_SECONDS)
        assert probe.status == health_pb2.HealthCheckResponse.SERVING
        refusals = [refused for call in calls if (refused := wire.refusal(call.result))]
        assert 0 < len(refusals) < CALLS
        assert {refused.code for refused in refusals} == {"RESOURCE_EXHAUSTED"}
        assert all(refused.retry_after for refused in refusals)
        assert stub.ComparePair(small, timeout=GENEROUS_SECONDS).results
        assert server.bugs() == []
