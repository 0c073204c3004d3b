"""What a long queue costs: submissions a second, and how soon another tenant's job starts.

    python benchmarks/job_queue.py [--queued 2000] [--postgres] [--out FILE]

One tenant queues jobs of a second each; then another submits one. In this process, without a
server: the record and its queue alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import run

# isort: split
import structlog
from acpc_server.jobs import JobService, JobState, Owner
from counting_jobs import counting_plan
from job_desk import SHORT, Desk
from load import quantiles
from postgres_server import PostgresServer, find_programs

LONG_QUEUE, OTHERS = Owner("long", "queue"), 100
PLAN = counting_plan(20, 0.05)


@contextmanager
def record(postgres: bool) -> Iterator[str]:
    """The URL of a record of its own; empty for SQLite."""
    programs = find_programs() if postgres else None
    if programs is None:
        yield ""
        return
    server = PostgresServer(programs).start()
    try:
        yield server.new_database()
    finally:
        server.stop()


def submit(service: JobService, owner: Owner, count: int) -> list[float]:
    """Seconds that each of some submissions took."""
    seconds = []
    for number in range(count):
        started = time.perf_counter()
        service.submit(PLAN, f"{number}", owner)
        seconds.append(time.perf_counter() - started)
    return seconds


def started_seconds(service: JobService, owner: Owner) -> float:
    """From the submission of a tenant's first job until it has started."""
    began = time.perf_counter()
    job_id = service.submit(SHORT, "first", owner).job_id
    while service.get(job_id, owner.tenant).state is JobState.QUEUED:
        time.sleep(0.01)
    return time.perf_counter() - began


def report(queued: int = 2000, postgres: bool = False) -> dict[str, object]:
    """What so many jobs in the queue cost."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as folder, record(postgres) as url:
        desk = Desk(Path(folder), url)
        try:
            service = desk.started(max_queued_per_tenant=queued + 1)
            filling = submit(service, LONG_QUEUE, queued)
            return {
                "queued": queued,
                "record": "postgresql" if url else "sqlite",
                "submissions_per_second": queued / sum(filling),
                "submission_behind_them": quantiles(submit(service, Owner("more"), OTHERS)),
                "other_tenant_started_seconds": started_seconds(service, Owner("other")),
            }
        finally:
            desk.close()


if __name__ == "__main__":
    run(report)
