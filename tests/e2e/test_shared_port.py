"""Two servers behind one port: one is killed under load and comes back, and no call is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import wire
from acpc_client import GaussianNoise
from acpc_client.sync.client import AcpcClient
from postgres_server import find_programs
from served_world import ServedWorld
from waiting import wait_until

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
