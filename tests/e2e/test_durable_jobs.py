"""A job of any kind outlives its server: killed in the middle, it ends with the same bytes.

Plain scores are killed under test_followers.py and test_many_hosts.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import numpy as np
import pytest
from acpc.v1.study_service_pb2 import RunStudyRequest
from acpc_client import AcpcClient, AnchorArrays
from anchor_wire import anchor_arrays
from faulty_world import FaultyWorld, write_faulty_world
from google.protobuf.message import Message
from job_world import JobCaller, job
from server_process import ServerProcess
from waiting import wait_until

pytestmark = pytest.mark.slow  # kills servers
ROOMS = {"dataset": "rooms.h5", "task": "tworoom"}
STUDIES = {
    "drift": {"groups": 4},
    "planner": {"budget": {"candidates": 8, "elites": 2, "iterations": 2, "horizon": 3}},
    "geometry": {"draws": 1},
    "sensitivity": {"probes": 1},
}


def study(kind: str) -> Message:
    source = {**ROOMS, "count": 20, "one_per_episode": False}
    return RunStudyRequest(checkpoint={"name": "model"}, dataset=source, **{kind: STUDIES[kind]})


# Of the digest of an anchor set with views, by kind; and the call in which its server is killed.
JOBS: dict[str, tuple[Callable[[str], Message], int]] = {
    # Its SR lies where few anchors do not decide it, so that it looks to the end: four times.
    "looks": (
        lambda _: job(
            reference=None, dataset={**ROOMS, "count": 40}, thresholds={"ir": 1e6, "sr": 0.7},
            until_decided={"batch": 5},
        ),
        6,
    ),
    "views": (
        lambda digest: job(
            dataset=None, anchor_set=digest, perturbation={"given_views": {"group": "lamp"}}
        ),
        5,
    ),
    **{kind: (lambda _, kind=kind: study(kind), 2) for kind in STUDIES},
}  # fmt: skip


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyWorld:
    return write_faulty_world(tmp_path_factory.mktemp("durable"))


@pytest.fixture(scope="module")
def server(faulty: FaultyWorld) -> Iterator[ServerProcess]:
    with faulty.server("state") as process:
        yield process
        assert process.bugs() == []


@pytest.fixture(scope="module")
def digest(server: ServerProcess) -> str:
    arrays = anchor_arrays(40, 3, steps=11, size=(28, 28), block=10)
    views = np.random.default_rng(4).integers(0, 256, (40, 5, 3, 28, 28, 3), np.uint8)
    with AcpcClient(server.address) as client:
        anchors = AnchorArrays(history=3, views={"lamp": views}, **arrays)
        return client.anchors.upload(anchors).digest


@contextmanager
def calls(server: ServerProcess) -> Iterator[JobCaller]:
    with grpc.insecure_channel(server.address) as channel:
        yield JobCaller(channel)


def steps(server: ServerProcess, name: str) -> list[int]:
    """Steps of a job that the current process has measured; replayed ones are not among them."""
    job_id = name.removeprefix("operations/")
    lines = [line for line in server.log() if line["event"] == "job_step"]
    return [line["step"] for line in lines if line["job"] == job_id]


@pytest.mark.parametrize("kind", JOBS)
def test_a_job_killed_in_the_middle_goes_on(
    faulty: FaultyWorld, server: ServerProcess, digest: str, kind: str
) -> None:
    """Every step is measured, and at most the one that was hit again; what it saw stays seen."""
    make, call = JOBS[kind]
    with calls(server) as caller:
        alone = caller.finished(caller.submit(make(digest)).name)
        whole = steps(server, alone.name)
        faulty.inject("state", f"hang {call}")
        name = caller.submit(make(digest)).name
        wait_until(lambda: faulty.hangs("state"))
    server.kill()
    before = steps(server, name)
    faulty.inject("state", "")
    server.start()
    with calls(server) as caller:
        done = caller.finished(name)
    after = steps(server, name)
    assert done.response.SerializeToString() == alone.response.SerializeToString()
    assert alone.WhichOneof("result") == "response"
    assert before and after and {*before, *after} == {*whole}
    assert len(whole) == len(set(whole)) >= len(before) + len(after) - 1
