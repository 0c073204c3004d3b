"""The life of an operation: idempotent, listed, waited for, watched, cancelled, deleted."""

import time

from acpc.v1 import scoring_service_pb2 as pb
from google.rpc import code_pb2
from job_world import JobCaller, job, metadata, response, steps_of
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until
from wire import blur, refusal

DATASET = {"dataset": "rooms.h5", "task": "tworoom"}


def quick(request_id: str = "", **changed: object) -> pb.ScoreCheckpointRequest:
    return job(request_id, **{"dataset": {**DATASET, "count": 20}, "reference": None, **changed})


def endless(request_id: str = "") -> pb.ScoreCheckpointRequest:
    """A job no test waits for: one shard takes seconds, all of them hours."""
    return job(
        request_id, dataset={**DATASET, "count": 500}, protocol={"draws": 1000}, reference=None
    )


def test_one_request_id_is_one_operation(calls: JobCaller) -> None:
    first = calls.submit(quick("once"))
    assert calls.submit(quick("once")).name == first.name
    done = calls.finished(first.name)
    assert calls.submit(quick("once")) == done
    other = refusal(lambda: calls.submit(quick("once", protocol={"draws": 4})))
    assert (other.code, other.reason) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED")
    assert first.name in other.message
    assert calls.get(first.name) == done, "the refused request left the first alone"


def test_a_running_job_stops_within_a_chunk(job_server: ServerProcess, calls: JobCaller) -> None:
    name = calls.submit(endless("running")).name
    job_id = name.removeprefix("operations/")
    wait_until(lambda: metadata(calls.get(name)).progress.completed >= 1)
    calls.cancel(name)
    ended = calls.get(name)
    job_server.wait_for_log(lambda line: line["event"] == "job_ended" and line["job"] == job_id)
    assert ended.done
    assert metadata(ended).state == pb.JOB_STATE_CANCELLED
    assert ended.error.code == code_pb2.CANCELLED
    steps = [line for line in job_server.log() if line["event"] == "job_step"]
    assert len([line for line in steps if line["job"] == job_id]) < 10
    calls.cancel(name)
    assert calls.get(name).error == ended.error, "cancelling twice changes nothing"
    assert calls.finished(calls.submit(quick()).name).HasField("response"), "the queue goes on"


def test_a_queued_job_never_starts_once_cancelled(
    job_server: ServerProcess, calls: JobCaller
) -> None:
    blocker = calls.submit(endless()).name
    wait_until(lambda: metadata(calls.get(blocker)).state == pb.JOB_STATE_RUNNING)
    queued = calls.submit(quick()).name
    assert metadata(calls.get(queued)).state == pb.JOB_STATE_QUEUED
    running = refusal(lambda: calls.delete(blocker))
    waiting = refusal(lambda: calls.delete(queued))
    assert [r and (r.code, r.reason) for r in (running, waiting)] == [
        ("FAILED_PRECONDITION", "OPERATION_RUNNING")
    ] * 2
    calls.cancel(queued)
    calls.cancel(blocker)
    assert calls.get(queued).error.code == code_pb2.CANCELLED
    calls.result(quick())
    started = [line["job"] for line in job_server.log() if line["event"] == "job_started"]
    assert queued.removeprefix("operations/") not in started


def test_a_deleted_operation_is_gone_and_its_request_id_free(calls: JobCaller) -> None:
    done = calls.finished(calls.submit(quick("again")).name)
    calls.delete(done.name)
    for attempt in (calls.get, calls.delete, calls.cancel, lambda n: list(calls.watch(n))):
        gone = refusal(lambda attempt=attempt: attempt(done.name))
        assert gone.code == "NOT_FOUND"
    fresh = calls.finished(calls.submit(quick("again", protocol={"draws": 3})).name)
    assert fresh.name == done.name
    assert fresh.response != done.response


def test_a_list_has_every_operation_once_newest_first_and_no_result(calls: JobCaller) -> None:
    names = [calls.submit(quick()).name for _ in range(3)]
    ended = {name: calls.finished(name) for name in names}
    whole = list(calls.list(page_size=1000).operations)
    assert [operation.name for operation in whole[:3]] == names[::-1]
    pages = [calls.list(page_size=2)]
    while pages[-1].next_page_token:
        pages.append(calls.list(page_size=2, page_token=pages[-1].next_page_token))
    assert [operation for page in pages for operation in page.operations] == whole
    created = [metadata(operation).create_time.ToNanoseconds() for operation in whole]
    assert created == sorted(created, reverse=True)
    for short in whole:
        assert not short.HasField("response")
        if (done := ended.get(short.name)) is not None:
            told = (short.done, short.metadata, short.error)
            assert told == (True, done.metadata, done.error)


def test_a_wait_ends_with_its_timeout_the_callers_or_the_job(calls: JobCaller) -> None:
    name = calls.submit(endless()).name
    for seconds in (0.0, 0.3):
        assert not calls.wait(name, seconds).done
    calls.cancel(name)
    assert calls.wait(name, GENEROUS_SECONDS).done
    negative = refusal(lambda: calls.wait(name, -1.0))
    assert (negative.code, negative.fields) == ("INVALID_ARGUMENT", ("timeout",))


def test_progress_only_grows_and_ends_at_the_total(calls: JobCaller) -> None:
    request = job("progress")
    seen = list(calls.watch(calls.submit(request).name))
    told = [metadata(operation) for operation in seen]
    completed = [message.progress.completed for message in told]
    assert completed == sorted(completed)
    assert {message.progress.total for message in told} == {steps_of(request)}
    assert completed[-1] == steps_of(request)
    assert [operation.done for operation in seen] == [False] * (len(seen) - 1) + [True]
    states = [message.state for message in told]
    assert states == sorted(states), "queued, running, succeeded"
    ended = told[-1]
    times = [t.ToNanoseconds() for t in (ended.create_time, ended.start_time, ended.end_time)]
    assert times == sorted(times)
    assert list(calls.watch(seen[-1].name)) == [seen[-1]], "a watch of a finished job is one answer"


def test_a_reference_with_the_same_weights_is_measured_once(calls: JobCaller) -> None:
    request = job("twin", reference={"name": "twin"})
    operation = calls.finished(calls.submit(request).name)
    assert metadata(operation).progress.total == steps_of(request, checkpoints=1)
    result = response(operation)
    assert result.reference.checkpoint.name == "twin"
    assert result.reference.anchor_values == result.checkpoint.anchor_values
    assert result.verdict.ir_relative == 1.0


def test_a_list_is_filtered_by_every_term(calls: JobCaller) -> None:
    old = calls.finished(calls.submit(quick("filtered-1")).name)
    time.sleep(1.0)  # SQLite notes whole seconds
    base = calls.finished(calls.submit(quick("filtered-2", checkpoint={"name": "base"})).name)
    since = f"created>={metadata(base).create_time.ToJsonString()}"

    def found(text: str) -> set[str]:
        return {op.name for op in calls.list(page_size=1000, filter=text).operations}

    mine = {old.name, base.name}
    assert found("state=succeeded AND kind=score_checkpoint") >= mine
    assert found("checkpoint=base") & mine == found(since) & mine == {base.name}
    assert found(f"{since} AND checkpoint=model") & mine == set() == found("kind=run_study")


def test_the_metadata_holds_a_request_that_gives_the_same_job(calls: JobCaller) -> None:
    """Defaults are filled in and digests pinned, so that it means the same tomorrow."""
    sent = job(perturbation=blur(), protocol={"draws": 2})
    first = calls.finished(calls.submit(sent).name)
    pinned = metadata(first).request
    assert pinned.request_id == ""
    assert len(pinned.checkpoint.digest) == len(pinned.reference.digest) == 64
    assert (pinned.protocol.draws, pinned.protocol.horizon, pinned.dataset.seed) == (2, 8, 9101)
    assert pinned.perturbation == sent.perturbation
    again = calls.finished(calls.submit(pinned).name)
    assert again.name != first.name
    assert metadata(again).request == pinned
    assert again.response == first.response
