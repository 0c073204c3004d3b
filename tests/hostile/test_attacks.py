"""Law: whoever holds the door, others are answered, and in the end the server holds no more."""

from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest
import wire
from attacks import ATTACKS, Target
from job_world import JobCaller
from served_world import write_world
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS
from watching import SLACK, Caller, watched

# The rest hold workers, streams, uploads or memory.
SLOW = ("many_connections", "rapid_reset", "unread_answers")
FLOOD_SECONDS = 3.0
# What messages may take while they are received, and the allocator beside them.
MAX_MIB = 1536


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    world = write_world(tmp_path_factory.mktemp("world"))
    with world.server() as process:
        yield process
        assert process.bugs() == []


@pytest.fixture
def target(server: ServerProcess, name: str) -> Iterator[Target]:
    """The server, with a job that outlasts the attack where this one waits for a job."""
    found = Target(server.address, f"127.0.0.1:{server.metrics_port}", seconds=FLOOD_SECONDS)
    if name not in ("waits", "busy_waits", "watches"):
        yield found
        return
    dataset = {"dataset": "tworoom.h5", "task": "tworoom", "count": 30}
    with grpc.insecure_channel(server.address) as channel:
        caller = JobCaller(channel)
        job = caller.submit(wire.score(dataset=dataset, protocol={"draws": 1000}))
        yield replace(found, operation=job.name)
        caller.cancel(job.name)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in ATTACKS],
)
def test_others_are_answered(server: ServerProcess, target: Target, name: str) -> None:
    caller = Caller(server.address, target.metrics, seconds=GENEROUS_SECONDS)
    report = watched(ATTACKS[name], target, caller, server.pid, rounds=1, memory_seconds=0)
    others = report["others"].items()
    assert {kind: told for kind, told in others if told["answered"] != "1/1"} == {}
    assert "crashed" not in report
    grown = report["most"]["rss_mib"] - report["before"]["rss_mib"]
    assert grown < MAX_MIB, report
    for what in ("threads", "files"):
        assert report["after"][what] <= report["before"][what] + SLACK[what], report
