"""Whose fault it is that a step fails: the job's, or this host's."""

import errno

import pytest
from acpc_server.errors import Unavailable
from acpc_server.jobs import JobState, run, runner
from counting_jobs import Counting
from job_desk import SHORT, Desk, ended
from waiting import wait_until

# A real record, whose threads are mostly waited for.
pytestmark = pytest.mark.process

OF_THE_JOB = [RuntimeError("shapes do not fit"), ZeroDivisionError(), FileNotFoundError("weights")]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that failed a job takes the next one at once, bar a pause in which others run."""
    monkeypatch.setattr(runner, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(runner, "LONGEST_PAUSE_SECONDS", 0.05)


def test_a_bug_of_a_kind_fails_the_job(desk: Desk) -> None:
    service = desk.started()
    for fault in OF_THE_JOB:
        desk.kind.fault = fault
        done = ended(service, service.submit(SHORT, "").job_id)
        assert (done.state, done.attempts) == (JobState.FAILED, 1)
        assert done.failure.reason == "BUG"


@pytest.mark.usefixtures("at_once")
def test_a_job_too_large_for_its_host_fails_and_the_next_one_runs(desk: Desk) -> None:
    service = desk.started()
    desk.kind.fault = MemoryError()
    done = ended(service, service.submit(SHORT, "").job_id)
    assert (done.failure.code, done.failure.reason) == ("RESOURCE_EXHAUSTED", "JOB_TOO_LARGE")
    assert done.attempts == run.SHORTAGES
    desk.kind.fault = None
    assert ended(service, service.submit(SHORT, "").job_id).state is JobState.SUCCEEDED


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_full_disk_or_too_many_files_fail_no_job_however_long_it_lasts(
    desk: Desk, number: int
) -> None:
    service = desk.started()
    desk.kind.fault = OSError(number, "short")
    name = service.submit(SHORT, "").job_id
    wait_until(lambda: service.get(name).attempts > run.SHORTAGES + 1)
    desk.kind.fault = None
    assert ended(service, name).state is JobState.SUCCEEDED


class Unbearable(Counting):
    name = "unbearable"  # the number of starts is that of a kind, from its first service on


@pytest.mark.usefixtures("at_once")
def test_a_job_that_no_host_can_bear_is_given_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 3
    monkeypatch.setattr(runner, "MAX_STARTS", most)
    desk.kind = Unbearable()
    service = desk.started()
    desk.kind.fault = Unavailable("the engine is closed")
    done = ended(service, service.submit(SHORT, "").job_id)
    assert (done.failure.code, done.failure.reason) == ("ABORTED", "TOO_MANY_STARTS")
    assert done.attempts == most + 2
