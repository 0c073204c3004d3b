"""Jobs of several callers on one record: who may see them, how many may wait, what is kept."""

import json
import sqlite3
from dataclasses import dataclass

import pytest
from acpc_server.errors import AlreadyExists, ResourceExhausted
from acpc_server.jobs import JobState
from counting_jobs import Counting, CountingPlan, counting_plan
from job_desk import LONG, SHORT, Desk, ended
from waiting import wait_until

# A real record, whose threads are mostly waited for.
pytestmark = pytest.mark.process


def test_a_request_id_means_one_job_whoever_sends_it(either: Desk) -> None:
    service = either.started()
    first = service.submit(SHORT, "same", "ann")
    assert service.submit(SHORT, "same", "ben").job_id == first.job_id
    done = ended(service, first.job_id)
    assert (done.state, done.owner) == (JobState.SUCCEEDED, "ann")
    assert [job.owner for job in service.list(0, 10)] == ["ann"]
    assert either.kind.run_for == {"ann"}


def test_a_digest_is_needed_until_the_jobs_that_name_it_have_ended(either: Desk) -> None:
    """However many others were submitted since."""
    service = either.started()
    ended(service, service.submit(counting_plan(3, checkpoint="over"), "").job_id)
    either.kind.held_at = 2
    runs = service.submit(counting_plan(3, checkpoint="runs"), "", "ann").job_id
    wait_until(lambda: service.get(runs).state is JobState.RUNNING)
    for checkpoint in ("waits", "later"):
        service.submit(counting_plan(3, checkpoint=checkpoint), "")
    needed = {digest: service.need(digest) for digest in ("runs", "waits", "over", "%")}
    assert needed == {"runs": True, "waits": True, "over": False, "%": False}
    either.kind.held_at = None
    ended(service, runs)
    assert not service.need("runs")


def test_a_job_of_nobody_has_the_id_and_the_row_it_always_had(desk: Desk) -> None:
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
    kept = json.loads(row[2])
    assert kept.pop("phases").keys() == {"record", "other"}
    assert kept == {"checkpoint": "model", "caller": ""}
    assert queues == [("acpc-score",)]


def test_queued_jobs_are_bounded(either: Desk) -> None:
    service = either.started(max_queued=3)
    running = service.submit(LONG, "running", "ann").job_id
    wait_until(lambda: service.get(running).state is JobState.RUNNING)
    queued = [service.submit(LONG, f"{n}", "ann").job_id for n in range(3)]
    for owner in ("ann", "ben"):
        with pytest.raises(ResourceExhausted, match="at most 3 may be") as refused:
            service.submit(LONG, "over", owner)
        assert refused.value.reason == "TOO_MANY_JOBS"
        assert refused.value.retry_after
    assert len(service.list(0, 10)) == 4, "nothing is recorded"
    assert service.submit(LONG, "0").job_id == queued[0], "what is on record is answered"
    service.cancel(queued[0])
    service.submit(LONG, "over")


@dataclass(frozen=True, kw_only=True)
class OtherPlan(CountingPlan):
    """The plan of another kind."""


class Recounting(Counting):
    name = "recounting"
    spec_type = OtherPlan


def test_a_request_id_that_another_kind_of_job_has_is_refused(either: Desk) -> None:
    either.other_kinds = [Recounting()]
    service = either.started()
    service.submit(SHORT, "one")
    with pytest.raises(AlreadyExists, match="was used for a counting job"):
        service.submit(OtherPlan(**vars(SHORT)), "one")
    assert [job.kind for job in service.list(0, 10)] == ["counting"]
