"""Where servers listen: Unix sockets, a port that two share, one that closes while they leave."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest
import wire
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc_client import AcpcClient, AsyncAcpcClient, GaussianNoise, PairComparison
from acpc_client.errors import Unauthenticated
from acpc_server.access import Role, create_key
from grpc_health.v1 import health_pb2, health_pb2_grpc
from postgres_server import find_programs
from served_world import ServedWorld
from waiting import GENEROUS_SECONDS, wait_until


@pytest.fixture
def path() -> Iterator[Path]:
    """A name that is short enough wherever temporary folders are."""
    with TemporaryDirectory(prefix="acpc") as folder:
        yield Path(folder) / "acpc.sock"


def test_both_clients_and_a_restart(world: ServedWorld, path: Path, tmp_path: Path) -> None:
    arguments = ("lewm", wire.frames(2), wire.blocks(3))
    with world.server(tmp_path, host=f"unix:{path}") as served:
        with AcpcClient(f"unix:{path}") as client:
            one = client.compare_pair(*arguments, perturbations=GaussianNoise(0.1))

        async def ask() -> PairComparison:
            async with AsyncAcpcClient(f"unix://{path}") as client:
                return await client.compare_pair(*arguments, perturbations=GaussianNoise(0.1))

        two = asyncio.run(ask())
        assert one.results == two.results
        served.kill()
        assert path.is_socket()
        served.start()
        with AcpcClient(f"unix:{path}") as client:
            assert client.checkpoints.get("lewm")
        assert served.terminate() == 0


def test_a_socket_asks_for_credentials(world: ServedWorld, path: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    key = create_key(keys, "ci", Role.READ)
    with world.server(tmp_path / "state", keys_file=keys, host=f"unix:{path}") as served:
        with AcpcClient(f"unix:{path}", token=key) as client:
            assert client.checkpoints.get("lewm")
        with AcpcClient(f"unix:{path}") as client, pytest.raises(Unauthenticated):
            client.checkpoints.get("lewm")
        line = served.wait_for_log(lambda line: line["event"] == "denied")
        assert line["peer"] == "unix:"
        line = served.wait_for_log(lambda line: line["event"] == "rpc")
        assert (line["principal"], line["peer"]) == ("ci", "unix:")


CALLS, CLIENTS = 500, 16


@pytest.fixture
def record(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The job record that both share: on PostgreSQL where it is installed."""
    if find_programs():
        return str(request.getfixturevalue("postgres").new_database())
    return f"sqlite:///{tmp_path / 'jobs.sqlite'}"


def test_every_call_is_answered_while_one_of_two_is_killed_and_comes_back(
    world: ServedWorld, tmp_path: Path, record: str
) -> None:
    shared = {"share_port": True, "jobs_url": record, "anchor_dir": tmp_path / "anchors"}
    answered, back = list[object](), threading.Event()

    def compare(client: AcpcClient) -> None:
        given = wire.frames(wire.HISTORY), wire.blocks()
        answered.append(client.compare_pair("lewm", *given, perturbations=GaussianNoise(0.1)))

    def ask(client: AcpcClient) -> None:
        while len(answered) < CALLS or not back.is_set():
            compare(client)

    with ExitStack() as opened:
        first = opened.enter_context(world.server(tmp_path / "first", **shared))
        second = world.server(tmp_path / "second", port=first.port, **shared)
        opened.enter_context(second)

        def second_serves() -> bool:
            """Ask on a new connection, which goes to either; a page of metrics may be older."""
            with AcpcClient(first.address) as client:
                compare(client)
            return 'grpc_method="ComparePair"' in second.metrics()

        clients = [opened.enter_context(AcpcClient(first.address)) for _ in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            asking = [pool.submit(ask, client) for client in clients]
            try:
                wait_until(lambda: second_serves() and len(answered) >= CALLS // 5)
                second.kill()
                second.restart()
                wait_until(second_serves)
            finally:
                back.set()
            for each in asking:
                each.result()
        assert first.bugs() == second.bugs() == []


def test_a_port_is_shared_by_those_alone_that_say_so(world: ServedWorld, tmp_path: Path) -> None:
    shared = {"jobs_url": f"sqlite:///{tmp_path / 'jobs'}", "anchor_dir": tmp_path / "anchors"}
    with (
        world.server(tmp_path / "first", share_port=True, **shared) as first,
        pytest.raises(RuntimeError, match="cannot listen on"),
    ):
        world.server(tmp_path / "second", port=first.port, **shared).start()


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
