"""Jobs of one record under two services, one after the other, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from acpc_server.data import DatasetStore
from acpc_server.diagnostics import (
    AnchorSource,
    CheckpointName,
    CheckpointScoring,
    Protocol,
    ScorePlan,
)
from acpc_server.engine import CheckpointCache, DeviceEngine
from acpc_server.errors import AlreadyExists, FailedPrecondition, NotFound, Unavailable
from acpc_server.jobs import Job, JobService, JobState
from acpc_server.models.loader import CheckpointLimits
from acpc_server.observe import Metrics
from acpc_server.perturb import GaussianNoise
from job_world import JobWorld, write_job_world


class Rooms:
    """What a job service stands on, and the services made of it."""

    def __init__(self, world: JobWorld) -> None:
        self.world = world
        self.metrics = Metrics()
        self.engine = DeviceEngine(torch.device("cpu"), self.metrics)
        self.checkpoints = CheckpointCache(
            world.checkpoints,
            torch.device("cpu"),
            self.metrics,
            limits=CheckpointLimits(),
            budget_bytes=2**30,
        )
        datasets = DatasetStore(world.datasets)
        self.scoring = CheckpointScoring(self.engine, self.checkpoints, datasets)

    def service(self, record: str) -> JobService:
        url = f"sqlite:///{self.world.root / record}"
        return JobService([self.scoring], self.metrics, database_url=url, executor_id="here")

    def plan(self, count: int = 40, draws: int = 3) -> ScorePlan:
        digest = self.checkpoints.get("model").model.card.digest
        return ScorePlan(
            checkpoint=CheckpointName(name="model", weights="weights.pt", digest=digest),
            reference=None,
            anchors=AnchorSource(dataset="rooms.h5", task="tworoom", count=count),
            perturbation=GaussianNoise(sigma=0.08),
            protocol=Protocol(draws=draws),
        )

    def counted(self) -> dict[str, float]:
        name = "acpc_jobs"
        states = [state.value for state in JobState]
        found = {s: self.metrics.registry.get_sample_value(name, {"state": s}) for s in states}
        return {state: value for state, value in found.items() if value}


@pytest.fixture
def rooms(tmp_path: Path) -> Rooms:
    return Rooms(write_job_world(tmp_path))


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, "it never came to pass"
        time.sleep(0.01)


def always() -> bool:
    return True


def test_a_withdrawn_job_resumes_under_the_next_service(rooms: Rooms) -> None:
    plan = rooms.plan(count=80, draws=12)
    first = rooms.service("jobs.sqlite")
    first.start()
    job_id = first.submit(plan, "one").job_id
    until(lambda: first.get(job_id).progress.completed >= 2)
    first.stop()
    assert rooms.counted() == {}, "it neither runs nor has ended"

    second = rooms.service("jobs.sqlite")
    second.start()
    left = second.get(job_id)
    assert not left.state.done
    assert left.progress.completed >= 2, "what was measured is on record"
    done = second.wait(job_id, 60, always)
    assert (done.state, done.attempts) == (JobState.SUCCEEDED, 2)
    again = second.wait(second.submit(plan, "two").job_id, 60, always)
    assert again.result == done.result
    assert rooms.counted() == {"succeeded": 2}
    second.stop()


def test_the_rules_of_submitting_cancelling_and_deleting(rooms: Rooms) -> None:
    service = rooms.service("jobs.sqlite")
    service.start()
    endless = service.submit(rooms.plan(count=500, draws=1000), "endless").job_id
    until(lambda: service.get(endless).state is JobState.RUNNING)
    queued = service.submit(rooms.plan(), "queued")
    assert service.submit(rooms.plan(), "queued").job_id == queued.job_id
    assert queued.progress.phase == "waiting"
    with pytest.raises(AlreadyExists):
        service.submit(rooms.plan(draws=4), "queued")
    with pytest.raises(FailedPrecondition):
        service.delete(queued.job_id)
    assert rooms.counted() == {"queued": 1, "running": 1}
    for job_id in (queued.job_id, endless, endless):
        service.cancel(job_id)
    until(lambda: rooms.counted() == {"cancelled": 2})
    listed = service.list(0, 10, JobState.CANCELLED)
    assert [job.job_id for job in listed] == [queued.job_id, endless]
    service.delete(endless)
    for call in (service.get, service.delete, service.cancel):
        with pytest.raises(NotFound):
            call(endless)
    service.stop()


def test_a_wait_ends_when_nobody_wants_it_and_a_watch_when_the_server_drains(
    rooms: Rooms,
) -> None:
    service = rooms.service("jobs.sqlite")
    service.start()
    job_id = service.submit(rooms.plan(count=500, draws=1000), "").job_id
    assert not service.wait(job_id, 600, lambda: False).state.done
    assert not service.wait(job_id, 0, always).state.done
    asked = iter([True, True, False])
    seen: list[Job] = list(service.watch(job_id, lambda: next(asked)))
    assert len(seen) <= 2
    watched = service.watch(job_id, always)
    next(watched)
    service.drain()
    with pytest.raises(Unavailable):
        list(watched)
    assert not service.wait(job_id, 600, always).state.done
    service.stop()


def test_a_database_that_cannot_be_opened_is_a_refusal(rooms: Rooms) -> None:
    service = rooms.service("no/such/folder/jobs.sqlite")
    with pytest.raises(FailedPrecondition, match="job record"):
        service.start()
    usable = rooms.service("jobs.sqlite")
    usable.start()
    assert usable.list(0, 10, None) == []
    usable.stop()
