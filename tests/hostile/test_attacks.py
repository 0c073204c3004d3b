"""Law: whoever holds the door, others are answered, and in the end the server holds no more."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import wire
from attacks import ATTACKS, Target
from job_world import JobCaller
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import wait_until
from watching import MIB, Resident, ask_all, holdings

# Until a server has taken up what an attack has sent.
SETTLE_SECONDS = 0.5
# What messages may take while they are received, and the allocator beside them.
MAX_MIB = 1536
# What a server may hold more than before; a pool of workers keeps its threads.
SLACK = {"threads": 80, "files": 32}


@pytest.fixture(scope="module")
def server(world: ServedWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    state: Path = tmp_path_factory.mktemp("attacked")
    with world.server(state) as process:
        yield process
        assert process.bugs() == []


@pytest.fixture
def target(server: ServerProcess, name: str) -> Iterator[Target]:
    """The server, with a job that outlasts the attack where this one waits for a job."""
    found = Target(server.address, f"127.0.0.1:{server.metrics_port}")
    if name not in ("waits", "busy_waits", "watches"):
        yield found
        return
    dataset = {"dataset": "tworoom.h5", "task": "tworoom", "count": 30}
    with grpc.insecure_channel(server.address) as channel:
        caller = JobCaller(channel)
        job = caller.submit(wire.score(dataset=dataset, protocol={"draws": 1000}))
        yield replace(found, operation=job.name)
        caller.cancel(job.name)


@pytest.mark.parametrize("name", ATTACKS)
def test_others_are_answered(server: ServerProcess, target: Target, name: str) -> None:
    before = holdings(server.pid)
    with Resident(server.pid, within=600) as memory, ATTACKS[name](target):
        time.sleep(SETTLE_SECONDS)
        ask_all(target.address, target.metrics)
    assert memory.highest < MAX_MIB * MIB

    def given_back() -> bool:
        held = holdings(server.pid)
        return all(held[what] <= before[what] + more for what, more in SLACK.items())

    wait_until(given_back, f"the server held {before}, and holds more for good", pause=0.1)
    ask_all(target.address, target.metrics)
