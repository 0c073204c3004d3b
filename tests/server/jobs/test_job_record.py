"""The record's file: a disk that is full, and a copy of it taken while jobs run."""

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from acpc_server.errors import FailedPrecondition, Unavailable
from acpc_server.jobs import Job, JobFilter, JobService, JobState
from acpc_server.jobs.record import Record
from counting_jobs import counting_plan
from job_desk import SHORT, Desk, ended
from sqlalchemy import event
from sqlalchemy.pool import Pool
from waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.edge]

# The spec and every step take as much room as the name.
BULKY = counting_plan(6, checkpoint="x" * 200_000)


class Pages:
    """A folder on which SQLite counts the pages it may have: works anywhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._most = 2**30
        event.listen(Pool, "checkout", self._limit)

    def _limit(self, connection: object, *_: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute(f"PRAGMA max_page_count = {self._most}")

    def fill(self) -> None:
        self._most = 1  # the least: as many as it has

    def free(self) -> None:
        self._most = 2**30

    def close(self) -> None:
        event.remove(Pool, "checkout", self._limit)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Pages]:
    made = Pages(tmp_path)
    yield made
    made.free()
    made.close()


def submit_until_refused(service: JobService) -> Unavailable:
    for _ in range(500):
        try:
            service.submit(BULKY, "")
        except Unavailable as error:
            return error
    pytest.fail("the disk is not full")


def test_a_full_disk_refuses_jobs_and_loses_none(disk: Pages) -> None:
    desk = Desk(disk.folder)
    try:
        service = desk.started()
        done = ended(service, service.submit(SHORT, "").job_id)
        desk.kind.held_at = 3
        running = service.submit(BULKY, "running").job_id
        wait_until(lambda: service.get(running).progress.completed == 3)
        disk.fill()
        refused = submit_until_refused(service)
        desk.kind.held_at = None
        assert (refused.reason, bool(refused.retry_after)) == ("JOB_RECORD_AWAY", True)
        assert "disk" in refused.message
        away = desk.metrics.registry.get_sample_value
        wait_until(lambda: away("acpc_job_record_away") == 1, "nobody is told")
        wait_until(lambda: not desk.counted().get("running"), "the job goes on without a record")
        assert "failed" not in desk.counted(), "what cannot be recorded is no failure of the job"
        assert service.get(done.job_id).result == done.result
        found = service.look([running])[running]
        assert isinstance(found, Job)
        assert (found.job_id, found.state) == (running, JobState.RUNNING)
        assert running in [job.job_id for job in service.list(0, 500)]
        assert service.submit(BULKY, "running").job_id == running

        disk.free()
        assert ended(service, running).state is JobState.SUCCEEDED
        assert ended(service, service.submit(SHORT, "").job_id).state is JobState.SUCCEEDED
        assert service.list(0, 1, JobFilter(state=JobState.FAILED)) == []
        wait_until(lambda: away("acpc_job_record_away") == 0, "it is away for ever")
    finally:
        disk.free()
        desk.close()


@pytest.mark.parametrize("command", [".backup", "VACUUM INTO"])
def test_a_copy_taken_while_jobs_run_resumes_them(tmp_path: Path, command: str) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "restored").mkdir()
    copy = tmp_path / "restored" / "jobs.sqlite"
    desk = Desk(tmp_path / "old")
    service = desk.started()
    desk.kind.held_at = 4
    done = ended(service, service.submit(SHORT, "").job_id)
    running = service.submit(counting_plan(8), "running").job_id
    wait_until(lambda: service.get(running).progress.completed == 4)
    queued = service.submit(SHORT, "queued").job_id
    source = sqlite3.connect(tmp_path / "old" / "jobs.sqlite")
    assert source.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    if command == ".backup":
        target = sqlite3.connect(copy)
        source.backup(target)
        target.close()
    else:
        source.execute(f"VACUUM INTO '{copy}'")
    source.close()
    desk.close()
    shutil.rmtree(tmp_path / "old")

    restored = Desk(tmp_path / "restored")
    try:
        service = restored.started()
        assert service.get(done.job_id).result == done.result
        for job_id in (running, queued):
            assert ended(service, job_id).state is JobState.SUCCEEDED
        assert service.get(running).attempts == 2
    finally:
        restored.close()


def test_an_sqlite_without_the_clock_that_dbos_asks_for_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    with monkeypatch.context() as older:
        older.setattr(sys, "version_info", (3, 12))
        older.setattr(sqlite3, "sqlite_version_info", (3, 41, 2))
        with pytest.raises(FailedPrecondition, match=r"needs SQLite 3\.42"):
            record.open()
    record.close()
