"""Jobs of several tenants on one record: whose they are, how many may wait, and who goes first."""

import json
import sqlite3
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import structlog
from acpc_server.errors import AlreadyExists, NotFound, ResourceExhausted
from acpc_server.jobs import JobFilter, JobService, JobState, Owner
from counting_jobs import Counting, CountingPlan, counting_plan
from job_desk import LONG, SHORT, Desk, ended
from waiting import wait_until

# A real record, whose threads are mostly waited for.
pytestmark = pytest.mark.process

ANN, BEN = Owner("a", "ann"), Owner("b", "ben")
CALLS: list[Callable[[JobService, str, str], object]] = [
    lambda service, job, tenant: service.get(job, tenant),
    lambda service, job, tenant: service.cancel(job, tenant),
    lambda service, job, tenant: service.delete(job, tenant),
    lambda service, job, tenant: service.follow(job, print, tenant),
]


def test_another_tenants_job_is_as_one_that_never_was(either: Desk) -> None:
    service = either.started()
    jobs = {
        owner.tenant: service.submit(SHORT, "same", owner).job_id for owner in (Owner(), ANN, BEN)
    }
    assert len(set(jobs.values())) == 3, "a request id is its tenant's"
    for tenant, job_id in jobs.items():
        assert ended(service, job_id, tenant).state is JobState.SUCCEEDED
        assert [job.job_id for job in service.list(0, 10, tenant=tenant)] == [job_id]
        never = str(uuid.uuid4())
        for other in jobs.keys() - {tenant}:
            for call in CALLS:
                with pytest.raises(NotFound) as found:
                    call(service, job_id, other)
                with pytest.raises(NotFound) as missing:
                    call(service, never, other)
                assert found.value.message == missing.value.message.replace(never, job_id)
                assert found.value.to_dict() == {
                    **missing.value.to_dict(),
                    "message": found.value.message,
                }
    results = {
        json.dumps(service.get(job_id, tenant).result, sort_keys=True)
        for tenant, job_id in jobs.items()
    }
    assert len(results) == 1, "a result does not depend on whose it is"
    assert either.kind.run_for == {("", ""), ("a", "ann"), ("b", "ben")}
    for tenant, job_id in jobs.items():
        service.delete(job_id, tenant)
        assert service.list(0, 10, tenant=tenant) == []


def test_a_digest_is_needed_until_the_jobs_that_name_it_have_ended(either: Desk) -> None:
    """However many others were submitted since."""
    service = either.started()
    ended(service, service.submit(counting_plan(3, checkpoint="over"), "").job_id)
    either.kind.held_at = 2
    runs = service.submit(counting_plan(3, checkpoint="runs"), "", ANN).job_id
    wait_until(lambda: service.get(runs, "a").state is JobState.RUNNING)
    service.submit(counting_plan(3, checkpoint="waits"), "", ANN)
    for checkpoint in ("ours", "later"):
        service.submit(counting_plan(3, checkpoint=checkpoint), "")
    tenants = (None, "", "a", "b")
    needed = {
        digest: [service.need(digest, tenant) for tenant in tenants]
        for digest in ("runs", "waits", "ours", "over", "%")
    }
    assert needed == {
        "runs": [True, False, True, False],
        "waits": [True, False, True, False],
        "ours": [True, True, False, False],
        "over": [False] * 4,
        "%": [False] * 4,
    }
    either.kind.held_at = None
    ended(service, runs, "a")
    assert not service.need("runs")


def test_a_job_of_nobody_needs_no_second_queue(desk: Desk) -> None:
    service = desk.started()
    job_id = service.submit(SHORT, "one").job_id
    assert job_id == "c8b64268-3e71-5caf-9612-b4862f5f0f57"
    ended(service, job_id)
    with sqlite3.connect(desk.folder / "jobs.sqlite") as record:
        row = record.execute(
            "SELECT queue_name, queue_partition_key, attributes FROM workflow_status"
        ).fetchone()
        queues = record.execute("SELECT name FROM queues").fetchall()
    assert row[:2] == ("acpc-score", None)
    assert json.loads(row[2]) == {"checkpoint": "model", "caller": ""}
    assert queues == [("acpc-score",)], "and no second queue is polled"


def test_a_submission_is_logged_with_whose_it_is_and_of_which_checkpoint(desk: Desk) -> None:
    service = desk.started()
    with structlog.testing.capture_logs() as lines:
        job_id = service.submit(SHORT, "one", ANN).job_id
    (line,) = (line for line in lines if line["event"] == "job_submitted")
    told = {"job": job_id, "checkpoint": "model", "tenant": "a", "principal": "ann"}
    assert told.items() <= line.items()


def test_a_tenants_many_jobs_do_not_hold_up_anothers(either: Desk) -> None:
    """Nor does a long one that runs, nor a tenant's jobs those of nobody."""
    service = either.started(max_running=2)
    either.kind.held_at = 5  # more than SHORT has: only the long jobs stay
    for _ in range(30):
        service.submit(LONG, "", ANN)

    def states() -> list[str]:
        return sorted(str(job.state) for job in service.list(0, 50, tenant="a"))

    only_one = ["queued"] * 29 + ["running"]
    wait_until(lambda: states() == only_one)
    for owner in (BEN, Owner()):
        job_id = service.submit(SHORT, "", owner).job_id
        assert ended(service, job_id, owner.tenant).state is JobState.SUCCEEDED
    assert states() == only_one


def test_jobs_of_tenants_resume_and_are_taken_over(either: Desk) -> None:
    first = either.started(executor_id="first")
    either.kind.held_at = 2
    job_id = first.submit(counting_plan(5), "", ANN).job_id
    wait_until(lambda: first.get(job_id, "a").progress.completed == 2)
    first.stop()
    either.kind.held_at = None
    second = either.started(executor_id="second")
    done = ended(second, job_id, "a")
    assert (done.state, done.attempts, done.owner) == (JobState.SUCCEEDED, 2, ANN)


@pytest.mark.parametrize(
    ("limits", "at_most", "quota"),
    [({"max_queued": 3}, 3, 0), ({"max_queued_per_tenant": 2}, 2, 0), ({}, 1, 1)],
)
def test_queued_jobs_are_bounded(
    either: Desk, limits: dict[str, int], at_most: int, quota: int
) -> None:
    service = either.started(**limits)
    running = service.submit(LONG, "running", ANN).job_id
    wait_until(lambda: service.get(running, "a").state is JobState.RUNNING)
    queued = [service.submit(LONG, f"{n}", ANN, quota).job_id for n in range(at_most)]
    with pytest.raises(ResourceExhausted) as refused:
        service.submit(LONG, "over", ANN, quota)
    assert refused.value.reason == "TOO_MANY_JOBS"
    assert refused.value.retry_after
    assert f"at most {at_most} may be" in refused.value.message
    assert len(service.list(0, 10, tenant="a")) == 1 + at_most, "nothing is recorded"
    again = service.submit(LONG, "0", ANN, quota)
    assert again.job_id == queued[0], "what is on record is answered"
    if "max_queued" not in limits:
        service.submit(LONG, "", BEN, quota)
    with pytest.raises(ResourceExhausted, match=f"{at_most} may be"):
        service.submit(LONG, "another key of the tenant", Owner("a", "anton"), quota)
    service.cancel(queued[0], "a")
    service.submit(LONG, "over", ANN, quota)


def test_submissions_at_once_on_several_hosts_do_not_pass_the_quota(either: Desk) -> None:
    hosts = [either.started(), either.service(), either.service()]  # the first runs jobs for all
    running = hosts[0].submit(LONG, "running", ANN).job_id
    wait_until(lambda: hosts[0].get(running, "a").state is JobState.RUNNING)
    start = threading.Barrier(12)

    def submit(n: int) -> bool:
        start.wait()
        try:
            hosts[n % 3].submit(LONG, "", Owner("a", f"key-{n % 4}"), 5)
        except ResourceExhausted:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(submit, range(12))) == 5
    assert len(hosts[0].list(0, 50, tenant="a")) == 1 + 5


@dataclass(frozen=True, kw_only=True)
class OtherPlan(CountingPlan):
    """The plan of another kind."""


class Recounting(Counting):
    name = "recounting"
    spec_type = OtherPlan


def test_a_request_id_that_another_kind_of_job_has_is_refused(either: Desk) -> None:
    either.other_kinds = [Recounting()]
    service = either.started()
    service.submit(SHORT, "one", ANN)
    with pytest.raises(AlreadyExists, match="was used for a counting job"):
        service.submit(OtherPlan(**vars(SHORT)), "one", ANN)
    assert [job.kind for job in service.list(0, 10, JobFilter(), "a")] == ["counting"]
