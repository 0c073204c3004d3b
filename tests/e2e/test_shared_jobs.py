"""One large job on two servers of a PostgreSQL record, and what it does when one of them goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from job_hosts import Hosts, large, write_large
from job_world import write_job_world
from postgres_server import PostgresServer
from server_process import ServerProcess
from waiting import wait_until

pytestmark = pytest.mark.slow

ANCHORS, DRAWS = 300, 16
STEPS = 1 + ANCHORS // 10 + 1
TERMS = {"job_heartbeat_seconds": 0.5, "job_lease_seconds": 2.0}


@pytest.fixture(scope="module")
def hosts(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    world = write_large(write_job_world(tmp_path_factory.mktemp("large")))
    with Hosts(world, postgres.new_database(), 2, **TERMS) as opened:
        yield opened
        assert [bug for server in opened.servers for bug in server.bugs()] == []


@pytest.fixture(scope="module")
def alone(hosts: Hosts) -> bytes:
    """Bytes of the job's result on one server; the other one is away."""
    away = hosts.servers[1]
    away.terminate()
    caller = hosts.caller(hosts.servers[0])
    done = caller.finished(caller.submit(large("alone", ANCHORS, DRAWS)).name)
    away.restart()
    return done.response.SerializeToString()


def measured(hosts: Hosts, name: str, server: ServerProcess) -> list[int]:
    """Steps of a job that a server's current process has begun to measure."""
    return [line["step"] for host, line in hosts.lines("job_step", name) if host is server]


def shared(hosts: Hosts, request_id: str) -> tuple[str, ServerProcess, ServerProcess]:
    """A job that both servers are at: its name, its own server, and the other one."""
    name = hosts.caller(hosts.servers[0]).submit(large(request_id, ANCHORS, DRAWS)).name
    own = hosts.runner(name, 1)
    [other] = hosts.others(own)
    wait_until(lambda: len(measured(hosts, name, other)) > 1, "the other server took no shard")
    return name, own, other


def test_two_servers_share_a_job_and_give_the_bytes_of_one(hosts: Hosts, alone: bytes) -> None:
    name, own, other = shared(hosts, "shared")
    done = hosts.caller(other).finished(name)
    assert done.response.SerializeToString() == alone
    steps = Counter(measured(hosts, name, own) + measured(hosts, name, other))
    assert sorted(steps) == list(range(1, STEPS + 1))


@pytest.mark.parametrize(
    ("victim", "end"), [("own", ServerProcess.kill), ("other", ServerProcess.terminate)]
)
def test_a_server_that_goes_costs_the_shard_it_was_at(
    hosts: Hosts, alone: bytes, victim: str, end: Callable[[ServerProcess], object]
) -> None:
    name, own, other = shared(hosts, f"without-{victim}")
    gone, survivor = (own, other) if victim == "own" else (other, own)
    end(gone)
    before = measured(hosts, name, gone)
    done = hosts.caller(survivor).finished(name)
    steps = Counter(before + measured(hosts, name, survivor))
    gone.restart()
    assert done.response.SerializeToString() == alone
    assert sorted(steps) == list(range(1, STEPS + 1)), "no shard is lost"
    assert steps.total() - STEPS <= 2, "the one that was under way, and one that changed hands"
