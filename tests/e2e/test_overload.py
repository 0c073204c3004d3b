"""A server with more calls than it can answer refuses at once, and keeps answering its probes."""

from pathlib import Path

import grpc
import wire
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from faulty_world import write_faulty_world
from grpc_health.v1 import health_pb2, health_pb2_grpc
from waiting import GENEROUS_SECONDS, wait_until

# Calls, and those that the server takes on.
CALLS, QUEUE = 200, 20


def test_refusals_are_typed_probes_answer_and_service_returns(tmp_path: Path) -> None:
    """The device is held up meanwhile, so that no call is answered before all have come."""
    faulty = write_faulty_world(tmp_path)
    with (
        faulty.server("full", max_queue=QUEUE) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = DiagnosticServiceStub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        pair = wire.pair(checkpoint={"name": "model"})
        stub.ComparePair(pair, timeout=GENEROUS_SECONDS)
        faulty.inject("full", "hang")
        views = [wire.tensor(wire.frames(3, seed=seed)) for seed in range(CALLS)]
        calls = [
            stub.ComparePair.future(
                wire.pair(checkpoint={"name": "model"}, history=view), timeout=GENEROUS_SECONDS
            )
            for view in views
        ]
        wait_until(lambda: sum(call.done() for call in calls) >= CALLS - QUEUE)
        probe = health.Check(health_pb2.HealthCheckRequest(), timeout=GENEROUS_SECONDS)
        assert probe.status == health_pb2.HealthCheckResponse.SERVING
        faulty.inject("full", "")
        refusals = [refused for call in calls if (refused := wire.refusal(call.result))]
        assert CALLS - QUEUE <= len(refusals) < CALLS
        assert {refused.code for refused in refusals} == {"RESOURCE_EXHAUSTED"}
        assert all(refused.retry_after for refused in refusals)
        assert stub.ComparePair(pair, timeout=GENEROUS_SECONDS).results
        assert server.bugs() == []
