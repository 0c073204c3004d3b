"""The probe says what a real health service says, by its exit code."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import typer
from acpc_client import AcpcClient
from acpc_server.health_check import health
from acpc_server.observe import HttpEndpoint, ServerHealth
from grpc_health.v1 import health as servicer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry
from served_world import ServedWorld
from typer.testing import CliRunner

PROBE = typer.Typer()
PROBE.command()(health)
SERVING = health_pb2.HealthCheckResponse.SERVING
Served = tuple[servicer.HealthServicer, int]


@pytest.fixture
def served() -> Iterator[Served]:
    server = grpc.server(ThreadPoolExecutor(2))
    health_service = servicer.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    health_service.set("", SERVING)
    yield health_service, port
    server.stop(None)


def _probe(*arguments: str, **environment: str) -> tuple[int, str]:
    result = CliRunner().invoke(PROBE, arguments, env=environment)
    return result.exit_code, result.output


def test_a_serving_server_passes(served: Served) -> None:
    _, port = served
    assert _probe(f"--port={port}") == (0, f"127.0.0.1:{port}: SERVING\n")


def test_a_draining_server_fails(served: Served) -> None:
    health_service, port = served
    health_service.enter_graceful_shutdown()
    assert _probe(f"--port={port}") == (1, f"127.0.0.1:{port}: NOT_SERVING\n")


def test_one_service_is_asked_by_name(served: Served) -> None:
    health_service, port = served
    health_service.set("acpc.v1.ScoringService", SERVING)
    assert _probe(f"--port={port}", "--service=acpc.v1.ScoringService")[0] == 0
    code, said = _probe(f"--port={port}", "--service=nobody")
    assert code == 1
    assert "NOT_FOUND" in said


def test_a_server_that_is_gone_fails() -> None:
    code, said = _probe("--port=1", "--timeout=2")
    assert code == 1
    assert "UNAVAILABLE" in said


@pytest.mark.process
def test_a_server_that_is_ready_tells_what_it_has_loaded(
    world: ServedWorld, tmp_path: Path
) -> None:
    with world.server(tmp_path, preload="lewm,lewm-base") as server:
        code, said = _probe(f"--http-port={server.metrics_port}")
        assert (code, said.splitlines()[1]) == (0, "loaded: lewm, lewm-base")
        with AcpcClient(server.address) as client:
            assert client.checkpoints.get("lewm-base").pinned
    with pytest.raises(RuntimeError, match="--preload nobody: checkpoint 'nobody'"):
        world.server(tmp_path, preload="lewm,nobody").start()


def test_the_metrics_port_is_asked_over_http() -> None:
    state = ServerHealth()
    endpoint = HttpEndpoint(CollectorRegistry(), state)
    port = endpoint.start("127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}"
    assert _probe(f"--http-port={port}") == (1, f"{url}/readyz: starting: the server starts\n")
    assert _probe(f"--http-port={port}", "--live") == (0, f"{url}/livez: ok\n")
    state.clear("starting")
    assert _probe(f"--http-port={port}") == (0, f"{url}/readyz: ok\n")
    endpoint.stop()
    assert _probe(f"--http-port={port}")[0] == 1


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (2, ["--target=\udcff"]), (2, ["--service=\udcff"]),
        (2, ["--target=\udcff", "--http-port=4"]),
        (2, ["--tls-ca", __file__, "--tls-name=\udcff"]), (1, ["--target=a..b:3", "--http-port=4"]),
        (2, [f"--http-port={10**20}"]), (2, ["--timeout=1e12", "--http-port=4"]),
    ],
)  # fmt: skip
def test_what_names_no_server_is_said_in_words(code: int, arguments: list[str]) -> None:
    result = CliRunner().invoke(PROBE, arguments)
    assert (result.exit_code, type(result.exception)) == (code, SystemExit)
