"""Jobs of one record under two services, one after the other, in one process."""

import itertools
import re
import threading
import time
import uuid

import pytest
from acpc_server.errors import FailedPrecondition, InvalidArgument, NotFound
from acpc_server.jobs import JobState
from acpc_server.jobs.service import NAMESPACE
from counting_jobs import counting_plan
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
    wait_until(lambda: second.get(job_id).progress.completed >= 4)
    assert second.get(job_id).progress.steps_per_second is not None
    either.kind.held_at = None
    done = ended(second, job_id)
    assert (done.state, done.attempts) == (JobState.SUCCEEDED, 2)
    again = ended(second, second.submit(plan, "two").job_id)
    assert again.result == done.result is not None
    wait_until(lambda: either.counted() == {"succeeded": 2})  # the record is counted now and then


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


@pytest.mark.parametrize(
    "url", ["sqlite:////no/such/folder/jobs.sqlite", "postgresql://nobody@127.0.0.1:1/none"]
)
def test_a_database_that_cannot_be_opened_is_a_refusal(desk: Desk, url: str) -> None:
    with pytest.raises(FailedPrecondition, match="job record"):
        desk.started(database_url=url)
    assert desk.started().list(0, 10) == [], "the refusal leaves nothing behind"
