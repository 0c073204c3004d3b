"""Jobs that nobody runs, faults of a job or its host, a sick database."""

import errno
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from acpc_server.errors import FailedPrecondition, Unavailable
from acpc_server.jobs import Job, JobService, JobState, LeaseTerms, run, runner
from counting_jobs import Counting, CountingPlan, counting_plan
from job_desk import LONG, SHORT, Desk, ended
from postgres_server import PostgresServer
from waiting import wait_until

# A real record, whose threads are mostly waited for.
pytestmark = pytest.mark.process


PATIENT = LeaseTerms(heartbeat=0.1, lease=3600.0)


def hand_over(desk: Desk, job_id: str, executor_id: str) -> None:
    """Make the record say that a queued job was taken up by somebody, who then does nothing."""
    with sqlite3.connect(desk.folder / "jobs.sqlite") as record:
        changed = record.execute(
            "UPDATE workflow_status SET status = 'PENDING', executor_id = ? "
            "WHERE workflow_uuid = ? AND status = 'ENQUEUED'",
            (executor_id, job_id),
        )
        assert changed.rowcount == 1


def busy(desk: Desk, **changed: object) -> tuple[JobService, str]:
    """A service, and the id of a long job that it runs, behind which others wait."""
    service = desk.started(**changed)
    blocker = service.submit(LONG, "").job_id
    wait_until(lambda: service.get(blocker).state is JobState.RUNNING)
    return service, blocker


def test_jobs_that_nobody_runs_are_queued_again(desk: Desk) -> None:
    service, blocker = busy(desk)
    dropped, orphan = (service.submit(SHORT, "").job_id for _ in range(2))
    hand_over(desk, dropped, (desk.folder / "name").read_text().strip())
    hand_over(desk, orphan, "never-seen")
    assert service.get(orphan).state is service.get(dropped).state is JobState.RUNNING
    for job_id in (dropped, orphan):
        wait_until(lambda job_id=job_id: service.get(job_id).state is JobState.QUEUED)
    assert service.get(blocker).attempts == 1, "what runs is left alone"
    service.cancel(blocker)
    for job_id in (dropped, orphan):
        assert ended(service, job_id).state is JobState.SUCCEEDED


def test_jobs_of_the_folder_s_last_server_and_of_one_that_left_need_no_lease(either: Desk) -> None:
    """The lock on the folder proves that the last one is dead, whatever name it had."""
    first = either.started(terms=PATIENT)
    name = (either.folder / "name").read_text().strip()
    blocker = first.submit(LONG, "").job_id
    wait_until(lambda: first.get(blocker).state is JobState.RUNNING)
    first.stop()
    (other := either.folder / "other").mkdir()
    (other / "name").write_text("none-such\n")
    second = either.started(state_dir=other, terms=PATIENT)
    wait_until(lambda: second.get(blocker).attempts == 2)
    assert (other / "name").read_text().strip() not in (name, "none-such")


def test_a_server_that_was_killed_is_known_by_its_folder(desk: Desk) -> None:
    first, blocker = busy(desk, terms=PATIENT)
    orphan = first.submit(SHORT, "").job_id
    hand_over(desk, orphan, "the-killed")
    first.cancel(blocker)
    first.stop()
    (desk.folder / "name").write_text("the-killed\n")
    assert ended(desk.started(terms=PATIENT), orphan).state is JobState.SUCCEEDED


def test_a_host_of_an_earlier_build_that_has_left_needs_no_lease(desk: Desk) -> None:
    """It empties its session, and leaves its jobs to others."""
    service, blocker = busy(desk, terms=PATIENT)
    orphan = service.submit(SHORT, "").job_id
    hand_over(desk, orphan, "earlier")
    with sqlite3.connect(desk.folder / "jobs.sqlite") as record:
        record.execute(
            "INSERT INTO acpc_hosts (executor_id, session, folder, beat, running) "
            "VALUES ('earlier', '', 'earlier', 7, '{}')"
        )
    wait_until(lambda: service.get(orphan).state is JobState.QUEUED)
    service.cancel(blocker)
    assert ended(service, orphan).state is JobState.SUCCEEDED


def test_a_host_that_has_its_lease_keeps_its_jobs(desk: Desk) -> None:
    """Also at the first look, when nobody knows yet whether it beats."""
    service, blocker = busy(desk, terms=PATIENT)
    other = service.submit(SHORT, "").job_id
    hand_over(desk, other, "elsewhere")

    def beats() -> int:
        with sqlite3.connect(desk.folder / "jobs.sqlite") as record:
            return record.execute("SELECT max(beat) FROM acpc_hosts").fetchone()[0]

    begun = beats()
    wait_until(lambda: beats() > begun + 5)
    assert service.get(other).state is JobState.RUNNING
    service.cancel(blocker)


@dataclass(frozen=True, kw_only=True)
class LaterPlan(CountingPlan):
    more: int = 1


class LaterCounting(Counting):
    spec_type = LaterPlan


def test_a_job_of_a_newer_release_waits_for_a_host_that_can_read_it(desk: Desk) -> None:
    desk.kind = LaterCounting()
    desk.kind.held_at = 2
    later = desk.started()
    plan = LaterPlan(**vars(counting_plan(30, 0.1)))
    job_id = later.submit(plan, "").job_id
    wait_until(lambda: later.get(job_id).progress.completed >= 1)
    later.stop()
    desk.kind = Counting()
    older = desk.started()
    time.sleep(0.5)
    with pytest.raises(FailedPrecondition, match="newer release"):
        older.get(job_id)
    assert older.list(0, 10) == []
    older.stop()
    desk.kind = LaterCounting()
    assert ended(desk.started(), job_id).state is JobState.SUCCEEDED


def attempt(look: Callable[[], list[Job]]) -> list[Job]:
    """What was asked for; nothing while the record cannot be reached."""
    try:
        return look()
    except Unavailable:
        return []


@pytest.mark.process
def test_a_database_that_takes_no_writes_for_a_while_costs_no_job(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """As in a failover: DBOS waits for a database that is away, not for one that refuses."""
    desk = Desk(tmp_path, postgres.new_database())
    name = desk.url.rpartition("/")[2]

    def turn(read_only: str) -> None:
        with psycopg.connect(desk.url.replace(name, "postgres"), autocommit=True) as admin:
            setting = f"ALTER DATABASE {name} SET default_transaction_read_only = {read_only}"
            admin.execute(setting.encode())
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )

    service = desk.started()
    desk.kind.held_at = 4
    job_id = service.submit(counting_plan(12, 0.1), "").job_id
    wait_until(lambda: service.get(job_id).progress.completed >= 3)
    turn("on")
    time.sleep(2.0)
    turn("off")
    desk.kind.held_at = None
    wait_until(lambda: any(job.state.done for job in attempt(lambda: service.list(0, 1))))
    done = service.get(job_id)
    assert done.state is JobState.SUCCEEDED
    again = ended(service, service.submit(counting_plan(12), "").job_id)
    assert again.result == done.result
    desk.close()


# A real record, whose threads are mostly waited for.

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
