"""Jobs of one record under two services, one after the other, in one process."""

import itertools
import re
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from acpc.contract import to_plain
from acpc_server.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from acpc_server.jobs import Job, JobFilter, JobState, Json, Step
from acpc_server.jobs.reading import JobReader
from acpc_server.jobs.record import Record
from acpc_server.jobs.runner import Withdrawn
from acpc_server.jobs.runs import JobRun, RunningJobs
from acpc_server.jobs.service import NAMESPACE
from acpc_server.observe import Metrics
from acpc_server.scheduling import RequestContext
from counting_jobs import Counting, CountingPlan, counting_plan
from job_desk import LONG, SHORT, Desk, ended
from waiting import GENEROUS_SECONDS, wait_until

# A real record, whose threads are mostly waited for.
pytestmark = pytest.mark.process


def test_a_withdrawn_job_resumes_under_the_next_service(
    either: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its progress does not go back, not even before it has seen again what it had done."""
    plan = counting_plan(8, 0.1)
    either.kind.held_at = 3
    first = either.started()
    job_id = first.submit(plan, "one").job_id
    wait_until(lambda: first.get(job_id).progress.completed >= 2)
    first.stop()
    assert either.counted() == {}, "it neither runs nor has ended"
    either.kind.held_at = None

    begins, run = threading.Event(), either.kind.run
    monkeypatch.setattr(
        either.kind, "run", lambda *given: begins.wait(GENEROUS_SECONDS) and run(*given)
    )
    second = either.started()
    wait_until(lambda: second.get(job_id).state is JobState.RUNNING)
    left = second.get(job_id).progress
    either.kind.held_at = 5
    begins.set()
    assert left.completed >= 2, "what was measured is on record"
    wait_until(lambda: second.get(job_id).progress.steps_per_second is not None)
    counted, steps = [], Record.steps
    monkeypatch.setattr(Record, "steps", lambda at, jobs: counted.extend(jobs) or steps(at, jobs))
    assert second.get(job_id).progress.completed >= 3
    assert not counted, "from its first new step on it knows by itself"
    either.kind.held_at = None
    done = ended(second, job_id)
    assert (done.state, done.attempts) == (JobState.SUCCEEDED, 2)
    again = ended(second, second.submit(plan, "two").job_id)
    assert again.result == done.result is not None
    wait_until(lambda: either.counted() == {"succeeded": 2})  # the record is counted now and then


def test_the_rules_of_submitting_cancelling_and_deleting(desk: Desk) -> None:
    service = desk.started()
    endless = service.submit(LONG, "endless").job_id
    wait_until(lambda: service.get(endless).state is JobState.RUNNING)
    queued = service.submit(SHORT, "queued")
    assert service.submit(SHORT, "queued").job_id == queued.job_id
    assert queued.progress.phase == "waiting"
    with pytest.raises(AlreadyExists):
        service.submit(counting_plan(4), "queued")
    with pytest.raises(FailedPrecondition):
        service.delete(queued.job_id)
    wait_until(lambda: desk.counted() == {"queued": 1, "running": 1})
    for job_id in (queued.job_id, endless, endless):
        service.cancel(job_id)
    wait_until(lambda: desk.counted() == {"cancelled": 2})
    listed = service.list(0, 10, JobFilter(state=JobState.CANCELLED))
    assert [job.job_id for job in listed] == [queued.job_id, endless]
    service.delete(endless)
    for call in (service.get, service.delete, service.cancel):
        with pytest.raises(NotFound):
            call(endless)


def twins() -> tuple[str, str]:
    """Two request ids whose jobs' ids begin with the same six digits."""
    seen: dict[str, str] = {}
    for name in map(str, itertools.count()):
        begins = str(uuid.uuid5(NAMESPACE, name))[:6]
        if begins in seen:
            return seen[begins], name
        seen[begins] = name
    raise AssertionError


def test_a_job_has_short_names_which_never_mean_two_jobs(either: Desk) -> None:
    service = either.started()
    with pytest.raises(NotFound, match=r"^there is no operation yet$"):
        service.get("latest")
    ids = [service.submit(SHORT, f"nightly-{number}").job_id for number in range(20)]
    for number, job_id in enumerate(ids):
        for name in (job_id, job_id[:9], f"nightly-{number}"):
            assert ended(service, name).job_id == job_id
    assert service.get("latest").job_id == service.list(0, 1)[0].job_id
    for name in (ids[0][:5], "000000", "nightly-20", "%%%%%%", "______"):
        with pytest.raises(NotFound, match=re.escape(f"operations/{name}")):
            service.get(name)
    with pytest.raises(NotFound, match="give at least 6 characters of its id"):
        service.get(ids[0][:5])
    first, second = twins()
    alike = [service.submit(SHORT, name).job_id for name in (first, second)]
    with pytest.raises(InvalidArgument, match="the beginning of several operations") as caught:
        service.cancel(alike[0][:6])
    assert all(f"operations/{job_id}" in caught.value.message for job_id in alike)
    service.delete(ids[3][:8])
    with pytest.raises(NotFound):
        service.get("nightly-3")


def test_a_job_id_that_has_ended_may_come_again_and_be_cancelled(desk: Desk) -> None:
    service = desk.started()
    assert ended(service, service.submit(SHORT, "again").job_id).state is JobState.SUCCEEDED
    service.delete(service.submit(SHORT, "again").job_id)
    holder = service.submit(LONG, "holder").job_id
    again = service.submit(LONG, "again").job_id
    service.cancel(again)
    assert service.get(again).state is JobState.CANCELLED
    service.cancel(holder)


def test_a_run_that_has_ended_is_not_cancelled_while_its_end_is_not_on_record() -> None:
    kind, running = Counting(), RunningJobs(Metrics(), lambda _: None)
    running.run(kind, "job", to_plain(counting_plan(0)), kind.stamped, "")
    assert not running.cancel("job", lambda: False, lambda: pytest.fail("it is cancelled"))


def test_a_run_that_was_withdrawn_begins_no_step() -> None:
    run = JobRun(Counting(), counting_plan(2), "", Metrics())
    run.context.cancel()
    with pytest.raises(Withdrawn):
        run("count", lambda: pytest.fail("it begins"))


def test_a_refused_step_fails_the_job_and_is_listed_as_failed(either: Desk) -> None:
    service = either.started()
    bad = ended(service, service.submit(counting_plan(5, bad=3), "").job_id)
    assert bad.state is JobState.FAILED
    assert (bad.failure.code, bad.failure.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert "step 3 is refused" in bad.failure.message
    assert bad.progress.completed == 4, "the refusal is on record too"

    good = ended(service, service.submit(SHORT, "").job_id)
    either.kind.stamped = "changed"
    blocked = service.submit(LONG, "").job_id
    either.kind.stamped = "later"
    changed = ended(service, blocked)
    assert (changed.failure.code, changed.failure.reason) == ("FAILED_PRECONDITION", "CHANGED")
    for state, ids in (
        (JobState.SUCCEEDED, [good.job_id]),
        (JobState.FAILED, [changed.job_id, bad.job_id]),
    ):
        assert [job.job_id for job in service.list(0, 10, JobFilter(state=state))] == ids
    listed = service.list(0, 10)
    assert [job.failure for job in listed] == [changed.failure, None, bad.failure]
    assert all(job.result is None for job in listed), "results stay out of lists"


def test_lists_are_filtered_by_label_kind_and_time(either: Desk) -> None:
    service = either.started()
    jobs = []
    for name in ("a", "b", "a"):
        jobs.append(service.submit(counting_plan(1, checkpoint=name), ""))
        ended(service, jobs[-1].job_id)
        if len(jobs) == 1:
            time.sleep(1.0)  # SQLite notes whole seconds

    def found(**wanted: object) -> list[str]:
        return [job.job_id for job in service.list(0, 10, JobFilter(**wanted))]

    newest_first = [job.job_id for job in reversed(jobs)]
    assert found() == found(kind="counting") == newest_first
    assert found(labels={"checkpoint": "a"}) == [jobs[2].job_id, jobs[0].job_id]
    assert found(labels={"checkpoint": "c"}) == []
    middle = datetime.fromtimestamp(jobs[1].created, UTC)
    assert found(created_since=middle) == newest_first[:2]
    assert found(created_since=middle + timedelta(hours=1)) == []
    assert found(created_since=middle, labels={"checkpoint": "a"}) == [jobs[2].job_id]


class InShards(Counting):
    """Counts each number in a shard, after a step that is none."""

    name = "in_shards"

    def count_steps(self, plan: CountingPlan) -> int:
        return 1 + plan.steps

    def run(self, plan: CountingPlan, stamp: str, step: Step, context: RequestContext) -> Json:
        step("opening", dict)
        seen = step.each("counting", lambda index: {"index": index}, range(plan.steps))
        return {"seen": [shard["index"] for shard in seen]}


def test_shards_are_steps_in_order_and_are_counted(desk: Desk) -> None:
    desk.kind = InShards()
    service = desk.started()
    done = ended(service, service.submit(SHORT, "").job_id)
    assert done.result == {"seen": [0, 1, 2]}
    assert done.progress.completed == 4
    count = desk.metrics.registry.get_sample_value
    assert count("acpc_job_shards_total", {"kind": "in_shards"}) == 3


def test_progress_has_a_rate_and_what_is_left(desk: Desk) -> None:
    service = desk.started()
    desk.kind.held_at = 4
    job_id = service.submit(counting_plan(20, 0.1), "").job_id
    wait_until(lambda: service.get(job_id).progress.completed >= 3)
    progress = service.get(job_id).progress
    desk.kind.held_at = None
    assert 0 < progress.steps_per_second <= 10
    left = (20 - progress.completed) / progress.steps_per_second
    assert progress.seconds_left == pytest.approx(left)
    done = ended(service, job_id).progress
    assert (done.completed, done.seconds_left) == (20, 0.0)


def test_finished_jobs_go_after_the_retention(desk: Desk) -> None:
    service = desk.started()
    old = [service.submit(plan, "").job_id for plan in (SHORT, counting_plan(2, bad=1))]
    for job_id in old:
        ended(service, job_id)
    service.stop()
    kept = desk.started(retention_days=1.0)
    time.sleep(0.3)
    assert len(kept.list(0, 10)) == 2, "they are not a day old"
    running = kept.submit(LONG, "").job_id
    kept.stop()
    swept = desk.started(retention_days=1e-6)
    wait_until(lambda: [job.job_id for job in swept.list(0, 10)] == [running])


def test_followers_are_told_of_every_change_by_one_thread_and_of_the_drain(desk: Desk) -> None:
    service = desk.started()
    job_id = service.submit(LONG, "").job_id
    told: list[list[object]] = [[] for _ in range(100)]
    stops = [service.follow(job_id, one.append) for one in told]
    looking = [thread for thread in threading.enumerate() if thread.name == "job-looks"]
    assert len(looking) == 1, "one thread looks for all of them"
    wait_until(lambda: all(len(one) >= 3 for one in told))
    stops[0]()
    left = len(told[0])
    service.drain()
    assert None not in told[0]
    assert len(told[0]) == left
    assert all(one[-1] is None and one.count(None) == 1 for one in told[1:])
    late: list[object] = []
    service.follow(job_id, late.append)
    assert isinstance(late[0], Job)
    assert late[1:] == [None]


def test_a_job_that_is_deleted_during_a_look_ends_nobody_else_s_wait(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = desk.started()
    short = ended(service, service.submit(SHORT, "").job_id).job_id
    long = service.submit(LONG, "").job_id
    several = JobReader.several

    def deleted_meanwhile(reader: JobReader, job_ids: list[str]) -> dict[str, Job]:
        found = several(reader, job_ids)
        service.delete(short)
        return found

    monkeypatch.setattr(JobReader, "several", deleted_meanwhile)
    assert service._look([short, long]).keys() == {long}


def test_a_job_that_is_done_has_nothing_more_to_say(desk: Desk) -> None:
    service = desk.started()
    told: list[object] = []
    service.follow(ended(service, service.submit(SHORT, "").job_id).job_id, told.append)
    assert [type(news) for news in told] == [Job]


@pytest.mark.parametrize(
    "url", ["sqlite:////no/such/folder/jobs.sqlite", "postgresql://nobody@127.0.0.1:1/none"]
)
def test_a_database_that_cannot_be_opened_is_a_refusal(desk: Desk, url: str) -> None:
    with pytest.raises(FailedPrecondition, match="job record"):
        desk.started(database_url=url)
    assert desk.started().list(0, 10) == [], "the refusal leaves nothing behind"


def test_a_state_folder_is_one_servers(desk: Desk) -> None:
    desk.started()
    with pytest.raises(FailedPrecondition, match="another server runs on the state folder"):
        desk.service().start()
