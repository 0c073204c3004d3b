"""Job services in this process, on one folder and one record."""

from pathlib import Path
from typing import Any

from acpc.contract import Progress
from acpc_server.jobs import (
    Job,
    JobKind,
    JobOptions,
    JobService,
    JobState,
    LeaseTerms,
    runner,
)
from acpc_server.observe import Metrics
from counting_jobs import Counting, counting_plan
from waiting import wait_until

# Services of tests look at their queues more often than a server that is to cost little.
runner.QUEUE_SECONDS = runner.POSTGRES_QUEUE_SECONDS = 0.05
# Twenty beats: a thread of a busy machine misses some.
TERMS = LeaseTerms(heartbeat=0.1, lease=2.0)
LONG = counting_plan(600, 0.1)
SHORT = counting_plan(3)


class Desk:
    """Services on one folder and one record, and what they count."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder / 'jobs.sqlite'}"
        self.kind = Counting()
        self.other_kinds: list[JobKind[Any]] = []
        self.metrics = Metrics()
        self._services: list[JobService] = []

    def service(self, **changed: object) -> JobService:
        given = {"database_url": self.url, "state_dir": self.folder, "terms": TERMS, **changed}
        service = JobService([self.kind, *self.other_kinds], self.metrics, JobOptions(**given))
        self._services.append(service)
        return service

    def started(self, **changed: object) -> JobService:
        service = self.service(**changed)
        service.start()
        return service

    def counted(self) -> dict[str, float]:
        found = {
            str(state): self.metrics.registry.get_sample_value("acpc_jobs", {"state": str(state)})
            for state in JobState
        }
        return {state: value for state, value in found.items() if value}

    def close(self) -> None:
        for service in self._services:
            service.stop()


def ended(service: JobService, job_id: str) -> Job:
    wait_until(lambda: service.get(job_id).state.done, f"{job_id} does not end")
    return service.get(job_id)


def bare_job(**changed: Any) -> Job:
    """A job of nobody that has begun, as no service has it."""
    given = {
        "job_id": "a", "owner": "", "kind": "counting", "recorded": {}, "created": 0.0,
        "state": JobState.RUNNING, "started": 0.0, "ended": None, "attempts": 1, "result": None,
        "failure": None, "phases": {}, "spec": SHORT,
        "progress": Progress.at("counting", 0, 3), **changed,
    }  # fmt: skip
    return Job(**given)
