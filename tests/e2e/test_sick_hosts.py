"""A job of a record that two servers share, of which one has a device that fails."""

import grpc
import pytest
from acpc_server.watchdog import DEVICE_FAILED
from faulty_world import write_faulty_world
from job_hosts import small
from job_world import JobCaller, response
from server_process import ServerProcess


def set_aside(server: ServerProcess) -> bool:
    return any(line["event"] == "job_set_aside" for line in server.log())


@pytest.mark.parametrize(("record", "fault"), [("postgres", "poison"), ("sqlite", "nan 2")])
def test_a_sick_server_costs_no_job_and_no_number(
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    record: str,
    fault: str,
) -> None:
    """Nothing that it computed since it fell sick is recorded."""
    faulty = write_faulty_world(tmp_path_factory.mktemp("faulty"))
    url = f"sqlite:///{faulty.world.root / 'shared.sqlite'}"
    if record == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    faulty.inject("sick", fault)
    with faulty.server("sick", jobs_url=url) as sick:
        with grpc.insecure_channel(sick.address) as channel:
            name = JobCaller(channel).submit(small("one", seed=1)).name
        assert sick.wait() == DEVICE_FAILED
        assert set_aside(sick)
    with (
        faulty.server("well", jobs_url=url) as well,
        grpc.insecure_channel(well.address) as channel,
    ):
        calls = JobCaller(channel)
        moved = response(calls.finished(name))
        assert moved == response(calls.finished(calls.submit(small("two", seed=1)).name))
        assert not set_aside(well)
