"""A job outlives its server: killed or drained, it goes on and ends with the same bytes."""

from __future__ import annotations

import os
import signal
from collections import Counter

import grpc
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from job_world import JobCaller, JobWorld, job, metadata, response, steps_of, write_job_world
from kill_series import run_series, sweep
from server_process import ServerProcess

pytestmark = pytest.mark.slow

JOBS = 12
KILLS = 4
LONG = job("long", dataset={"dataset": "rooms.h5", "task": "tworoom", "count": 95})
LONG.protocol.draws = 20
STEPS = steps_of(LONG)
# Its SR lies where few anchors do not decide it, so that it looks to the end: eight times.
LOOKING = job(
    reference=None,
    dataset={"dataset": "rooms.h5", "task": "tworoom", "count": 40},
    thresholds={"ir": 1e6, "sr": 0.7},
    until_decided={"batch": 5},
)
MIDDLE = 6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> JobWorld:
    return write_job_world(tmp_path_factory.mktemp("durable"))


@pytest.fixture(scope="module")
def undisturbed(world: JobWorld) -> bytes:
    """Bytes of the result from a server that was left alone."""
    with world.server("undisturbed") as server, calls(server) as caller:
        done = caller.finished(caller.submit(LONG).name)
        assert metadata(done).attempts == 1
        assert response(done).checkpoint.anchors == 95
        return done.response.SerializeToString()


class calls:
    """A caller of a running server; its channel is closed before the server stops."""

    def __init__(self, server: ServerProcess) -> None:
        self._channel = grpc.insecure_channel(server.address)

    def __enter__(self) -> JobCaller:
        return JobCaller(self._channel)

    def __exit__(self, *_: object) -> None:
        self._channel.close()


def ran(server: ServerProcess) -> list[int]:
    """Steps measured in the current process; replayed ones are not among them."""
    return [line["step"] for line in server.log() if line["event"] == "job_step"]


def test_a_sweep_killed_at_random_moments_gives_the_same_bytes(world: JobWorld) -> None:
    requests = sweep(JOBS, anchors=40, draws=8)
    with world.server("left-alone") as server:
        alone = run_series(server, requests)
    with world.server("killed") as server:
        killed = run_series(server, requests, kills=KILLS, longest=0.6)
        assert server.bugs() == []
    assert killed.hits, "kills came while a job ran"
    assert killed.responses == alone.responses
    assert len(set(alone.responses)) == JOBS, "no two jobs are the same"
    assert set(alone.attempts) == {1}
    assert JOBS + killed.hits <= sum(killed.attempts) <= JOBS + KILLS
    assert alone.repeated == 0
    assert {step for _, step in killed.measured} == {step for _, step in alone.measured}
    assert len(killed.measured) == len(alone.measured), "every step is measured"
    assert killed.repeated <= KILLS, "a kill repeats at most the step it hit"


def test_a_job_that_looks_goes_on_between_its_looks(world: JobWorld) -> None:
    """Killed after its second look; what it saw by then stays seen."""
    with world.server("looking") as server:
        with calls(server) as caller:
            alone = caller.finished(caller.submit(LOOKING).name)
        for _ in range(5):  # a kill may come too late on a busy machine
            with calls(server) as caller:
                name = caller.submit(LOOKING).name
                server.wait_for_log(
                    lambda line, name=name: (
                        line["event"] == "job_step"
                        and (line["job"], line["step"]) == (_id_of(name), MIDDLE)
                    )
                )
            server.kill()
            before = [line["step"] for line in _steps_of(server, name)]
            server.start()
            with calls(server) as caller:
                done = caller.finished(name)
            assert done.response.SerializeToString() == alone.response.SerializeToString()
            if metadata(done).attempts == 2:
                break
        after = [line["step"] for line in _steps_of(server, name)]
    assert (metadata(alone).attempts, metadata(done).attempts) == (1, 2)
    looks = response(done).evidence.looks
    assert (looks.stop, len(looks.looks)) == (pb.LOOK_STOP_LIMIT, 8)
    assert after
    assert len(set(before) & set(after)) <= 1, "a kill repeats at most the step it hit"


def test_a_drained_server_hands_its_job_to_the_next(world: JobWorld, undisturbed: bytes) -> None:
    queued = job("queued", checkpoint={"name": "twin"}, reference=None)
    with world.server("drained") as server:
        with calls(server) as caller:
            names = [caller.submit(request).name for request in (LONG, queued)]
            watched = caller.watch(names[0])
            assert not next(watched).done
            server.wait_for_log(lambda line: line["event"] == "job_step" and line["step"] == 4)
            os.kill(server.pid, signal.SIGTERM)
            with pytest.raises(grpc.RpcError) as ended:
                list(watched)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE, "a watcher is told to come again"
        assert server.terminate() == 0
        before = ran(server)
        ends = [line["end"] for line in server.log() if line["event"] == "job_ended"]
        assert set(ends) == {"withdrawn"}
        assert not [line for line in server.log() if line["level"] == "error"]
        server.start()
        with calls(server) as caller:
            done, other = (caller.finished(name) for name in names)
        times = Counter(before + [line["step"] for line in _steps_of(server, names[0])])
    assert done.response.SerializeToString() == undisturbed
    assert response(other).verdict.outcome in (pb.OUTCOME_INCONCLUSIVE, pb.OUTCOME_FAILED)
    assert 0 < len(before) < STEPS, "the signal came in the middle"
    assert sorted(times) == list(range(1, STEPS + 1))
    assert sum(times.values()) - STEPS <= 1


def _steps_of(server: ServerProcess, name: str) -> list[dict[str, object]]:
    steps = [line for line in server.log() if line["event"] == "job_step"]
    return [line for line in steps if line["job"] == _id_of(name)]


def _id_of(name: str) -> str:
    return name.removeprefix("operations/")
