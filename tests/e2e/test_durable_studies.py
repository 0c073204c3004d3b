"""Studies outlive their server, and what was measured before is not measured again."""

import random
import time
from collections import Counter

import grpc
import pytest
from acpc.v1 import study_service_pb2 as pb
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from job_world import JobCaller, JobWorld
from waiting import GENEROUS_SECONDS

pytestmark = pytest.mark.slow  # kills servers
SHARDS = 2
SOURCE = {"dataset": "rooms.h5", "task": "tworoom", "count": 10 * SHARDS, "one_per_episode": False}
BUDGET = {"candidates": 16, "elites": 4, "iterations": 3, "horizon": 3}
STUDIES = {
    "drift": {"groups": 4},
    "planner": {"budget": BUDGET},
    "geometry": {"draws": 2},
    "sensitivity": {"probes": 2},
}
KILLED = ("planner", "sensitivity")


def submit(channel: grpc.Channel, kind: str) -> str:
    """One study of a kind."""
    request = pb.RunStudyRequest(
        request_id=kind, checkpoint={"name": "model"}, dataset=SOURCE, **{kind: STUDIES[kind]}
    )
    return StudyServiceStub(channel).RunStudy(request, timeout=GENEROUS_SECONDS).name


def answers(channel: grpc.Channel, names: list[str]) -> list[bytes]:
    caller = JobCaller(channel)
    done = [caller.finished(name) for name in names]
    assert [operation.WhichOneof("result") for operation in done] == ["response"] * len(names)
    return [operation.response.SerializeToString() for operation in done]


def test_studies_killed_at_random_moments_give_the_same_bytes(job_world: JobWorld) -> None:
    """A kill repeats at most the shard it hit, and every study ends with the undisturbed bytes."""
    with (
        job_world.server("undisturbed") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        wanted = answers(channel, [submit(channel, kind) for kind in STUDIES])
    moment = random.Random(7)
    begun: Counter[tuple[str, int]] = Counter()
    names = []
    with job_world.server("killed") as server:
        for kind in STUDIES:
            with grpc.insecure_channel(server.address) as channel:
                names.append(submit(channel, kind))
            if kind in KILLED:
                server.wait_for_log(lambda line, k=kind: line.get("phase") == f"measuring {k}")
                time.sleep(moment.uniform(0.0, 0.2))
                server.kill()
                begun.update(steps(server.log()))
                server.start()
        with grpc.insecure_channel(server.address) as channel:
            found = answers(channel, names)
        begun.update(steps(server.log()))
        assert server.bugs() == []
    assert found == wanted
    ids = [name.removeprefix("operations/") for name in names]
    assert set(begun) == {(name, step) for name in ids for step in range(1, SHARDS + 2)}
    assert begun.total() - len(begun) <= len(KILLED)


def steps(log: list[dict[str, object]]) -> list[tuple[str, int]]:
    """Steps measured in one life of the server; replayed ones are not among them."""
    return [(str(x["job"]), int(str(x["step"]))) for x in log if x["event"] == "job_step"]
