"""One large job on two servers of a PostgreSQL record, and what it does when one of them goes."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import AcpcClient, AnchorArrays
from job_hosts import Hosts, large, write_large
from job_world import job, write_job_world
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
    flags = {**TERMS, "anchor_dir": world.root / "anchors"}
    with Hosts(world, postgres.new_database(), 2, **flags) as opened:
        yield opened
        assert [bug for server in opened.servers for bug in server.bugs()] == []


@pytest.fixture(scope="module")
def given(hosts: Hosts) -> str:
    """An anchor set whose histories come with views."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (ANCHORS, 11, 28, 28, 3), np.uint8)
    anchors = AnchorArrays(
        history=3,
        frames=frames,
        action_blocks=rng.standard_normal((ANCHORS, 10, 10), np.float32),
        endpoint_states=rng.standard_normal((ANCHORS, 2)),
        labels=np.arange(ANCHORS) % 2,
        anchor_ids=np.arange(ANCHORS),
    )
    lamps = np.linspace(0.2, 1.0, DRAWS)[None, :, None, None, None, None]
    views = {"lamp": (frames[:, None, :3] * lamps).astype(np.uint8)}
    with AcpcClient(hosts.servers[0].address) as client:
        return client.anchors.upload(anchors, views=views).digest


def of_views(request_id: str, digest: str) -> pb.ScoreCheckpointRequest:
    shift = {"given_views": {"group": "lamp"}}
    changed = {"dataset": None, "anchor_set": digest, "perturbation": shift, "reference": None}
    return job(request_id, protocol={"draws": DRAWS}, **changed)


@pytest.fixture(scope="module")
def lone(hosts: Hosts, given: str) -> tuple[bytes, bytes]:
    """Bytes of both jobs' results on one server; the other one is away."""
    away = hosts.servers[1]
    away.terminate()
    caller = hosts.caller(hosts.servers[0])
    asked = (large("alone", ANCHORS, DRAWS), of_views("alone-views", given))
    done = [caller.finished(caller.submit(request).name) for request in asked]
    away.restart()
    drawn, brought = (item.response.SerializeToString() for item in done)
    return drawn, brought


@pytest.fixture(scope="module")
def alone(lone: tuple[bytes, bytes]) -> bytes:
    return lone[0]


def measured(hosts: Hosts, name: str, server: ServerProcess) -> list[int]:
    """Steps of a job that a server's current process has begun to measure."""
    return [line["step"] for host, line in hosts.lines("job_step", name) if host is server]


def shared(
    hosts: Hosts, request: pb.ScoreCheckpointRequest
) -> tuple[str, ServerProcess, ServerProcess]:
    """A job that both servers are at: its name, its own server, and the other one."""
    name = hosts.caller(hosts.servers[0]).submit(request).name
    own = hosts.runner(name, 1)
    [other] = hosts.others(own)
    wait_until(lambda: len(measured(hosts, name, other)) > 1, "the other server took no shard")
    return name, own, other


@pytest.mark.parametrize("views", [False, True], ids=["drawn", "given"])
def test_two_servers_share_a_job_and_give_the_bytes_of_one(
    hosts: Hosts, given: str, lone: tuple[bytes, bytes], views: bool
) -> None:
    request = of_views("shared-views", given) if views else large("shared", ANCHORS, DRAWS)
    name, own, other = shared(hosts, request)
    done = hosts.caller(other).finished(name)
    assert done.response.SerializeToString() == lone[views]
    steps = Counter(measured(hosts, name, own) + measured(hosts, name, other))
    assert sorted(steps) == list(range(1, STEPS + 1))


@pytest.mark.parametrize(
    ("victim", "end"), [("own", ServerProcess.kill), ("other", ServerProcess.terminate)]
)
def test_a_server_that_goes_costs_the_shard_it_was_at(
    hosts: Hosts, alone: bytes, victim: str, end: Callable[[ServerProcess], object]
) -> None:
    name, own, other = shared(hosts, large(f"without-{victim}", ANCHORS, DRAWS))
    gone, survivor = (own, other) if victim == "own" else (other, own)
    end(gone)
    before = measured(hosts, name, gone)
    done = hosts.caller(survivor).finished(name)
    steps = Counter(before + measured(hosts, name, survivor))
    gone.restart()
    assert done.response.SerializeToString() == alone
    assert sorted(steps) == list(range(1, STEPS + 1)), "no shard is lost"
    assert steps.total() - STEPS <= 2, "the one that was under way, and one that changed hands"


def test_a_record_that_restarts_costs_no_shard(
    hosts: Hosts, postgres: PostgresServer, alone: bytes
) -> None:
    name, own, other = shared(hosts, large("restarted", ANCHORS, DRAWS))
    postgres.stop()  # as a crash does: every transaction under way is lost
    postgres.start()
    wait_until(lambda: reached(hosts, name, own), "the record is back")
    done = hosts.caller(own).finished(name)
    assert done.response.SerializeToString() == alone
    steps = Counter(measured(hosts, name, own) + measured(hosts, name, other))
    assert sorted(steps) == list(range(1, STEPS + 1))


def reached(hosts: Hosts, name: str, server: ServerProcess) -> bool:
    try:
        hosts.caller(server).get(name)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE, error
        return False
    return True


def gone(server: ServerProcess) -> int:
    """How often a server has declared another one dead."""
    return sum(line["event"] == "host_gone" for line in server.log())


@pytest.mark.parametrize("victim", ["own", "other"])
def test_a_server_that_wakes_after_the_job_has_ended_changes_nothing(
    hosts: Hosts, alone: bytes, victim: str
) -> None:
    name, own, other = shared(hosts, large(f"asleep-{victim}", ANCHORS, DRAWS))
    asleep, awake = (own, other) if victim == "own" else (other, own)
    before = gone(awake)
    os.kill(asleep.pid, signal.SIGSTOP)
    try:
        done = hosts.caller(awake).finished(name)
        wait_until(lambda: gone(awake) > before, "its lease lasts")
    finally:
        os.kill(asleep.pid, signal.SIGCONT)
    asleep.wait_for_log(lambda line: line["event"] == "lease_lost")
    event = "job_ended" if victim == "own" else "job_task_ended"
    wait_until(lambda: any(host is asleep for host, _ in hosts.lines(event, name)))
    assert done.response.SerializeToString() == alone
    assert hosts.caller(asleep).get(name) == done
    steps = Counter(measured(hosts, name, own) + measured(hosts, name, other))
    assert sorted(steps) == list(range(1, STEPS + 1))
    assert steps.total() - STEPS <= 2, "the one that was under way, and one that changed hands"
