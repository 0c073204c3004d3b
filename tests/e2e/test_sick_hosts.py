"""Two servers on one record, of which one has a device that fails."""

from __future__ import annotations

import grpc
import pytest
from acpc_server.watchdog import DEVICE_FAILED
from faulty_world import write_faulty_world
from job_hosts import small
from job_world import JobCaller, response
from server_process import ServerProcess
from waiting import wait_until

pytestmark = pytest.mark.process
JOBS = 40


def set_aside(server: ServerProcess) -> bool:
    return any(line["event"] == "job_set_aside" for line in server.log())


@pytest.mark.parametrize("record", ["sqlite", "postgres"])
def test_a_poisoned_server_costs_no_job(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, record: str
) -> None:
    faulty = write_faulty_world(tmp_path_factory.mktemp("faulty"))
    url = f"sqlite:///{faulty.world.root / 'shared.sqlite'}"
    if record == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    faulty.inject("sick", "poison")
    with (
        faulty.server("well", jobs_url=url) as well,
        faulty.server("sick", jobs_url=url) as sick,
        grpc.insecure_channel(well.address) as channel,
    ):
        caller = JobCaller(channel)
        names = [caller.submit(small(f"{seed}", seed)).name for seed in range(JOBS)]
        wait_until(lambda: set_aside(sick), "the poisoned server took no job")
        assert sick.wait() == DEVICE_FAILED
        for name in names:
            response(caller.finished(name))
        assert not set_aside(well)
