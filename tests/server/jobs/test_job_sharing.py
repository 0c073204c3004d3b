"""Jobs whose parts are measured by other runs than their own: a host with two places plays both.

Another host is on record and beats, so parts are offered; the second place takes them up.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from acpc_server.jobs import JobService, JobState, Json, Owner
from acpc_server.jobs.database import Host, JobDatabase
from counting_jobs import CountingParts, PartsPlan
from job_desk import TERMS, Desk, ended
from waiting import wait_until

PARTS = 60
LAST = PARTS - 1


def plan(seconds: float = 0.05, parts: int = PARTS, bad: int = -1) -> PartsPlan:
    return PartsPlan(checkpoint="model", steps=parts, seconds=seconds, bad=bad)


class Shared(Desk):
    """A desk with a neighbour on its record."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kind = CountingParts()
        self._left = threading.Event()
        self._database = JobDatabase(self.url)
        self._beating = threading.Thread(target=self._beat)

    def neighbour(self) -> None:
        host = Host("neighbour", "its process", "its folder")
        self._database.open()
        self._database.enter(host, None)
        self._beating.start()

    def _beat(self) -> None:
        host = self._database.hosts()["neighbour"]
        while not self._left.wait(TERMS.heartbeat):
            self._database.beat(host, "{}")

    def started(self, **changed: object) -> JobService:
        """A service that has seen its neighbour."""
        service = super().started(**{"concurrency": 2, "executor_id": "here", **changed})
        if self._beating.ident is not None:
            wait_until(lambda: self._database.hosts()["here"].beat > 1)
        return service

    def shards(self, whose: str) -> float:
        labels = {"kind": self.kind.name, "origin": whose}
        return self.metrics.registry.get_sample_value("acpc_job_shards_total", labels) or 0

    def tasks(self) -> int:
        return self._counted("workflow_status WHERE name = 'measure_parts'")

    def steps(self, job_id: str) -> int:
        return self._counted("operation_outputs WHERE workflow_uuid = ?", job_id)

    def last_step(self, job_id: str) -> int:
        which = "operation_outputs WHERE workflow_uuid = ?"
        return self._counted(which, job_id, what="coalesce(max(function_id), 0)")

    def _counted(self, which: str, *values: str, what: str = "count(*)") -> int:
        with sqlite3.connect(self.folder / "jobs.sqlite") as record:
            query = f"SELECT {what} FROM {which}"  # noqa: S608 - of this file
            return record.execute(query, values).fetchone()[0]

    def close(self) -> None:
        super().close()
        self._left.set()
        if self._beating.ident is not None:
            self._beating.join()
            self._database.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Shared]:
    opened = Shared(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Json | None:
    """The result of the job where nobody else is."""
    opened = Shared(tmp_path_factory.mktemp("alone"))
    try:
        service = opened.started()
        done = ended(service, service.submit(plan(0.0), "").job_id)
        assert (opened.shards("own"), opened.shards("other")) == (PARTS, 0)
        return done.result
    finally:
        opened.close()


def test_parts_are_measured_once_by_whoever_is_free(desk: Shared, alone: Json) -> None:
    desk.neighbour()
    service = desk.started()
    job_id = service.submit(plan(), "").job_id
    wait_until(lambda: desk.shards("own") and desk.shards("other"), "nobody else took a part")
    queued = desk.metrics.registry.get_sample_value("acpc_jobs", {"state": "queued"})
    done = ended(service, job_id)
    assert done.result == alone
    assert sorted(desk.kind.begun) == list(range(PARTS))
    again = desk.kind.begun.total() - PARTS
    assert again < PARTS / 4, "few are taken back as another begins them, where the machine is busy"
    assert desk.shards("own") + desk.shards("other") == PARTS
    assert queued == desk.tasks() == 0, "a task is no queued job, and none is left"
    assert desk.counted() == {"succeeded": 1}


def test_a_small_job_stays_in_one_piece(desk: Shared) -> None:
    desk.neighbour()
    service = desk.started()
    done = ended(service, service.submit(plan(parts=19), "").job_id)
    assert done.state is JobState.SUCCEEDED
    assert desk.shards("other") == 0


def test_a_part_that_fails_elsewhere_is_measured_by_the_jobs_own_host(
    desk: Shared, alone: Json
) -> None:
    desk.neighbour()
    desk.kind.failing_once = {LAST}
    service = desk.started()
    done = ended(service, service.submit(plan(), "").job_id)
    assert done.result == alone
    assert desk.kind.begun[LAST] == 2
    assert desk.tasks() == 0


def test_a_place_of_other_arithmetic_leaves_the_parts_to_the_jobs_own_host(
    desk: Shared, alone: Json
) -> None:
    desk.neighbour()
    desk.kind.arithmetic_by_now = "of another processor"
    service = desk.started()
    job_id = service.submit(plan(), "").job_id
    done = ended(service, job_id)
    assert done.result == alone
    assert (desk.shards("own"), desk.shards("other")) == (PARTS, 0)
    assert desk.tasks() == 0


def test_a_part_that_fails_everywhere_fails_the_job_once(desk: Shared) -> None:
    desk.neighbour()
    service = desk.started()
    done = ended(service, service.submit(plan(bad=LAST - 1), "").job_id)
    assert done.failure is not None
    assert done.failure.message == f"bad: step {LAST - 1} is refused"
    assert desk.kind.begun[LAST - 1] == 2, "where it was offered to, and by the job's own host"
    assert desk.kind.begun[LAST] == 0
    assert desk.tasks() == 0


def test_cancelling_ends_the_parts_elsewhere_too(desk: Shared) -> None:
    desk.neighbour()
    desk.kind.held_at = 4
    service = desk.started()
    job_id = service.submit(plan(), "").job_id
    wait_until(lambda: desk.shards("other") > 0 and service.get(job_id).progress.completed >= 4)
    service.cancel(job_id)
    assert ended(service, job_id).state is JobState.CANCELLED
    wait_until(lambda: desk.tasks() == 0)
    desk.kind.held_at = None
    again = ended(service, service.submit(plan(0.0, parts=3), "").job_id)
    assert again.state is JobState.SUCCEEDED, "both places are free again"


def test_a_job_goes_on_with_what_others_have_measured(desk: Shared, alone: Json) -> None:
    desk.neighbour()
    first = desk.started()
    job_id = first.submit(plan(0.2), "").job_id
    wait_until(
        lambda: desk.last_step(job_id) > desk.steps(job_id),
        "answers of others become no steps of the job before it gets there",
    )
    first.stop()
    before = desk.kind.begun.copy()
    assert 0 < before.total() < PARTS
    second = desk.started()
    done = ended(second, job_id)
    assert done.result == alone
    again = desk.kind.begun.total() - PARTS
    assert again < PARTS / 4, "those that were under way, and few that are taken back too late"
    assert desk.tasks() == 0


def test_another_tenants_job_does_not_wait_for_a_large_one(desk: Shared) -> None:
    desk.neighbour()
    desk.kind.held_at = 4
    service = desk.started()
    large = service.submit(plan(), "", Owner("large")).job_id
    wait_until(lambda: desk.shards("own") and desk.shards("other"))
    mine = service.submit(plan(0.0, parts=3), "", Owner("small")).job_id
    assert ended(service, mine, "small").state is JobState.SUCCEEDED
    assert service.get(large, "large").state is JobState.RUNNING
    service.cancel(large, "large")
