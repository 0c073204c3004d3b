"""Files that change under a job fail it by name; what the server counts adds up."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1.anchor_service_pb2 import CreateAnchorSetRequest, DeleteAnchorSetRequest
from google.longrunning import operations_pb2
from google.rpc import code_pb2, error_details_pb2
from job_world import JobCaller, JobWorld, job, metadata, response, steps_of, write_job_world
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess
from waiting import wait_until
from wire import refusal

Parts = tuple[JobWorld, ServerProcess, JobCaller]
LONG = {"dataset": "rooms.h5", "task": "tworoom", "count": 300}


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    world = write_job_world(tmp_path)
    with (
        world.server("state", job_concurrency=2) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield world, server, JobCaller(channel)


def long(request_id: str) -> pb.ScoreCheckpointRequest:
    """A job that goes on for minutes if nothing ends it."""
    return job(request_id, dataset=LONG, protocol={"draws": 60})


def wait_for_progress(calls: JobCaller, name: str, completed: int) -> None:
    for operation in calls.watch(name):
        assert not operation.done, operation.error
        if metadata(operation).progress.completed >= completed:
            return


def reason(operation: operations_pb2.Operation) -> tuple[int, str]:
    info = error_details_pb2.ErrorInfo()
    assert operation.error.details[0].Unpack(info)
    return operation.error.code, info.reason


def jobs_by_state(server: ServerProcess) -> dict[str, float]:
    families = {each.name: each for each in text_string_to_metric_families(server.metrics())}
    return {sample.labels["state"]: sample.value for sample in families["acpc_jobs"].samples}


def settled(server: ServerProcess, expected: dict[str, float]) -> dict[str, float]:
    wait_until(lambda: jobs_by_state(server) == expected, f"it never became {expected}")
    return jobs_by_state(server)


def test_files_replaced_under_jobs_fail_them_and_every_end_is_counted(parts: Parts) -> None:
    world, server, calls = parts
    first, second = (calls.submit(long(name)).name for name in ("first", "second"))
    for name in (first, second):
        wait_for_progress(calls, name, 2)
    queued = calls.submit(job("queued")).name
    dropped = calls.submit(job("dropped")).name
    busy = dict.fromkeys(jobs_by_state(server), 0) | {"running": 2, "queued": 2}
    assert settled(server, busy) == busy, "two jobs at a time"

    world.write_dataset(seed=6)
    calls.cancel(dropped)
    changed = (code_pb2.FAILED_PRECONDITION, "DATASET_CHANGED")
    for name in (first, second, queued):
        assert reason(calls.finished(name)) == changed
    assert metadata(calls.get(first)).progress.completed < steps_of(long("first"))

    third = calls.submit(long("third")).name
    wait_for_progress(calls, third, 2)
    world.write_weights("model", seed=9)
    assert reason(calls.finished(third)) == (code_pb2.FAILED_PRECONDITION, "CHECKPOINT_CHANGED")

    running = calls.submit(long("running")).name
    wait_for_progress(calls, running, 2)
    calls.cancel(running)
    calls.result(job("good"))
    expected = {"queued": 0, "running": 0, "succeeded": 1, "failed": 4, "cancelled": 2}
    assert settled(server, expected) == expected

    server.kill()
    server.start()
    assert not [line for line in server.log() if line["event"] == "job_started"]
    assert set(jobs_by_state(server).values()) == {0}


def test_a_deleted_job_does_not_disturb_its_successor_of_the_same_request_id(parts: Parts) -> None:
    """The successor starts beside the run it replaces, which is still inside a chunk."""
    _, server, calls = parts
    endless = job("again", dataset=LONG, protocol={"draws": 1000}, reference=None)
    name = calls.submit(endless).name
    job_id = name.removeprefix("operations/")
    server.wait_for_log(lambda line: line["event"] == "job_step" and line["step"] == 2)
    calls.cancel(name)
    calls.delete(name)
    assert calls.submit(job("again")).name == name
    assert response(calls.finished(name)).checkpoint.anchors == 60
    expected = {"queued": 0, "running": 0, "succeeded": 1, "failed": 0, "cancelled": 1}
    assert settled(server, expected) == expected
    lives = [line["event"] for line in server.log() if line.get("job") == job_id]
    assert lives.count("job_started") == lives.count("job_ended") == 2


def test_a_set_in_use_stays_and_a_job_whose_set_goes_says_so(parts: Parts) -> None:
    """The store's own deletion is refused; files that go all the same fail the job by name."""
    world, _, calls = parts
    made = CreateAnchorSetRequest(source=LONG, history=3, horizon=8)
    digest = calls.anchors.CreateAnchorSet(made).anchor_set.digest
    running = job("set", dataset=None, anchor_set=digest, protocol={"draws": 40}, reference=None)
    name = calls.submit(running).name
    wait_for_progress(calls, name, 2)
    found = refusal(lambda: calls.anchors.DeleteAnchorSet(DeleteAnchorSetRequest(digest=digest)))
    assert (found.code, found.reason) == ("FAILED_PRECONDITION", "ANCHOR_SET_IN_USE")
    (folder,) = Path(world.root / "state").rglob(digest)
    shutil.rmtree(folder)
    ended = calls.finished(name)
    assert reason(ended) == (code_pb2.FAILED_PRECONDITION, "ANCHOR_SET_DELETED")
    assert digest in ended.error.message
