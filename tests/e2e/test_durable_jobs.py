"""A job outlives its server: killed or drained, it goes on and ends with the same bytes."""

from functools import partial

import grpc
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from faulty_world import FaultyWorld, write_faulty_world
from job_world import JobCaller, job, metadata, response
from kill_series import run_series, sweep
from server_process import ServerProcess
from waiting import wait_until

pytestmark = pytest.mark.slow  # kills servers
JOBS = 4
# Calls of a checkpoint after its loading in which a server of the series is killed.
KILLS = (3, 8, 5)
LONG = job("long", dataset={"dataset": "rooms.h5", "task": "tworoom", "count": 45})
LONG.protocol.draws = 3
# Its SR lies where few anchors do not decide it, so that it looks to the end: eight times.
LOOKING = job(
    reference=None,
    dataset={"dataset": "rooms.h5", "task": "tworoom", "count": 40},
    thresholds={"ir": 1e6, "sr": 0.7},
    until_decided={"batch": 5},
)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyWorld:
    """Checkpoints that hold their job up, so that it is killed in the middle."""
    return write_faulty_world(tmp_path_factory.mktemp("durable"))


class calls:
    """A caller of a running server; its channel is closed before the server stops."""

    def __init__(self, server: ServerProcess) -> None:
        self._channel = grpc.insecure_channel(server.address)

    def __enter__(self) -> JobCaller:
        return JobCaller(self._channel)

    def __exit__(self, *_: object) -> None:
        self._channel.close()


def test_a_sweep_killed_again_and_again_gives_the_same_bytes(faulty: FaultyWorld) -> None:
    requests = sweep(JOBS, anchors=40, draws=2)
    with faulty.server("left-alone") as server:
        alone = run_series(server, requests)
    holds = [f"hang {call}" for call in KILLS]

    def kill(next_hold: str) -> None:
        wait_until(lambda: faulty.hangs("killed"), "no job was held up")
        server.kill()
        faulty.inject("killed", next_hold)

    faulty.inject("killed", holds[0])
    with faulty.server("killed") as server:
        kills = [partial(kill, hold) for hold in (*holds[1:], "")]
        killed = run_series(server, requests, kills)
        assert server.bugs() == []
    assert killed.responses == alone.responses
    assert len(set(alone.responses)) == JOBS, "no two jobs are the same"
    assert set(alone.attempts) == {1}
    assert (killed.hits, sum(killed.attempts)) == (len(KILLS), JOBS + len(KILLS))
    assert alone.repeated == 0
    assert {step for _, step in killed.measured} == {step for _, step in alone.measured}
    assert len(killed.measured) == len(alone.measured), "every step is measured"
    assert killed.repeated <= len(KILLS), "a kill repeats at most the step it hit"


def test_a_job_that_looks_goes_on_between_its_looks(faulty: FaultyWorld) -> None:
    """Killed after its second look; what it saw by then stays seen."""
    with faulty.server("looking") as server:
        with calls(server) as caller:
            alone = caller.finished(caller.submit(LOOKING).name)
        server.kill()
        faulty.inject("looking", "hang 7")
        server.start()
        with calls(server) as caller:
            name = caller.submit(LOOKING).name
            wait_until(lambda: faulty.hangs("looking"))
        server.kill()
        before = [line["step"] for line in _steps_of(server, name)]
        faulty.inject("looking", "")
        server.start()
        with calls(server) as caller:
            done = caller.finished(name)
        after = [line["step"] for line in _steps_of(server, name)]
    assert done.response.SerializeToString() == alone.response.SerializeToString()
    assert (metadata(alone).attempts, metadata(done).attempts) == (1, 2)
    looks = response(done).evidence.looks
    assert (looks.stop, len(looks.looks)) == (pb.LOOK_STOP_LIMIT, 4)
    assert len(before) > 3, "two looks and their shards"
    assert after
    assert len(set(before) & set(after)) <= 1, "a kill repeats at most the step it hit"


def _steps_of(server: ServerProcess, name: str) -> list[dict[str, object]]:
    steps = [line for line in server.log() if line["event"] == "job_step"]
    return [line for line in steps if line["job"] == _id_of(name)]


def _id_of(name: str) -> str:
    return name.removeprefix("operations/")
