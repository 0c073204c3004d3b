"""The probe says by its exit code what a server says over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from acpc_client import AcpcClient
from acpc_server.health_check import health
from acpc_server.observe import HttpEndpoint, ServerHealth
from prometheus_client import CollectorRegistry
from served_world import ServedWorld
from typer.testing import CliRunner

PROBE = typer.Typer()
PROBE.command()(health)


def _probe(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(PROBE, arguments)
    return result.exit_code, result.output


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


@pytest.fixture
def served() -> Iterator[tuple[ServerHealth, HttpEndpoint, int]]:
    state = ServerHealth()
    endpoint = HttpEndpoint(CollectorRegistry(), state)
    yield state, endpoint, endpoint.start("127.0.0.1", 0)
    endpoint.stop()


def test_readiness_and_liveness_are_asked(served: tuple[ServerHealth, HttpEndpoint, int]) -> None:
    state, endpoint, port = served
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
        (2, ["--host=\udcff"]), (1, ["--host=a..b"]), (2, [f"--http-port={10**20}"]),
        (2, ["--timeout=1e12"]),
    ],
)  # fmt: skip
def test_what_names_no_server_is_said_in_words(code: int, arguments: list[str]) -> None:
    result = CliRunner().invoke(PROBE, arguments)
    assert (result.exit_code, type(result.exception)) == (code, SystemExit)
