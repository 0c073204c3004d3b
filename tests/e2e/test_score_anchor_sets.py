"""Scores over stored anchor sets: the same numbers as over their dataset, and precise refusals."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import wire
from acpc.v1 import anchor_service_pb2 as anchors_pb
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1.anchor_service_pb2_grpc import AnchorServiceStub
from google.rpc import code_pb2, error_details_pb2
from job_world import JobCaller, JobWorld, job, metadata, response, steps_of
from server_process import ServerProcess

HISTORY, HORIZON = 3, 8
SOURCE = {"dataset": "rooms.h5", "task": "tworoom", "count": 23}


class SetCaller(JobCaller):
    """The job RPCs and the making of anchor sets."""

    def __init__(self, channel: grpc.Channel) -> None:
        super().__init__(channel)
        self.sets = AnchorServiceStub(channel)

    def make(self, *, history: int = HISTORY, horizon: int = HORIZON, **source: object) -> str:
        request = anchors_pb.CreateAnchorSetRequest(
            source={**SOURCE, **source}, history=history, horizon=horizon
        )
        return self.sets.CreateAnchorSet(request).anchor_set.digest


@pytest.fixture(scope="module")
def calls(job_server: ServerProcess) -> Iterator[SetCaller]:
    with grpc.insecure_channel(job_server.address) as channel:
        yield SetCaller(channel)


def over(digest: str, request_id: str = "", **changed: object) -> object:
    return job(request_id, dataset=None, anchor_set=digest, **changed)


def refused(calls: SetCaller, request: object) -> wire.Refusal:
    found = wire.refusal(lambda: calls.submit(request))
    assert found is not None
    return found


def without_fit(answer: pb.ScoreCheckpointResponse) -> bytes:
    """All but what a dataset tells besides its anchors: its normaliser, and more misfits."""
    parameters = json.loads(answer.receipt.parameters)
    answer.receipt.parameters = json.dumps(
        {**parameters, "action": None, "fit": None}, sort_keys=True
    )
    for side in (answer.checkpoint, answer.reference):
        side.ClearField("fit")
    return answer.SerializeToString(deterministic=True)


def test_a_set_and_its_dataset_give_the_same_bytes(calls: SetCaller) -> None:
    """Digest of the anchors included: a set is its content, wherever it came from."""
    digest = calls.make()
    of_set = calls.finished(calls.submit(over(digest)).name)
    of_dataset = calls.finished(calls.submit(job(dataset=SOURCE)).name)
    assert without_fit(response(of_set)) == without_fit(response(of_dataset))
    assert response(of_set).receipt.anchors_digest == digest
    assert response(of_set).checkpoint.anchors == 23
    asked = metadata(of_set).request
    assert (asked.anchor_set, asked.WhichOneof("anchors")) == (digest, "anchor_set")
    assert metadata(of_set).progress.total == steps_of(job(dataset=SOURCE))


def test_a_job_whose_set_goes_says_so_and_a_set_in_use_stays(
    calls: SetCaller, job_world: JobWorld
) -> None:
    """The store's own deletion is refused; files that go all the same fail the job by name."""
    digest = calls.make(count=300)
    running = calls.submit(over(digest, protocol={"draws": 40}, reference=None)).name
    queued = calls.submit(over(digest)).name
    for operation in calls.watch(running):
        if metadata(operation).progress.completed >= 2:
            break
    request = anchors_pb.DeleteAnchorSetRequest(digest=digest)
    found = wire.refusal(lambda: calls.sets.DeleteAnchorSet(request))
    assert (found.code, found.reason) == ("FAILED_PRECONDITION", "ANCHOR_SET_IN_USE")
    (folder,) = Path(job_world.root / "state").rglob(digest)
    shutil.rmtree(folder)
    for name in (running, queued):
        error = calls.finished(name).error
        info = error_details_pb2.ErrorInfo()
        assert error.details[0].Unpack(info)
        assert error.code == code_pb2.FAILED_PRECONDITION
        assert info.reason == "ANCHOR_SET_DELETED"
        assert digest in error.message
