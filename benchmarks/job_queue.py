"""What a long queue costs: submissions a second, and one behind many others.

    python benchmarks/job_queue.py [--queued 2000] [--postgres] [--out FILE]

In this process, without a server: the record and its queue alone.
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
from acpc_server.jobs import JobService
from counting_jobs import counting_plan
from job_desk import Desk
from load import quantiles
from postgres_server import PostgresServer, find_programs

OTHERS = 100
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


def submit(service: JobService, owner: str, count: int) -> list[float]:
    """Seconds that each of some submissions took."""
    seconds = []
    for number in range(count):
        started = time.perf_counter()
        service.submit(PLAN, f"{owner} {number}", owner)
        seconds.append(time.perf_counter() - started)
    return seconds


def report(queued: int = 2000, postgres: bool = False) -> dict[str, object]:
    """What so many jobs in the queue cost."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as folder, record(postgres) as url:
        desk = Desk(Path(folder), url)
        try:
            service = desk.started(max_queued=queued + OTHERS + 1)
            filling = submit(service, "first", queued)
            return {
                "queued": queued,
                "record": "postgresql" if url else "sqlite",
                "submissions_per_second": queued / sum(filling),
                "submission_behind_them": quantiles(submit(service, "more", OTHERS)),
            }
        finally:
            desk.close()


if __name__ == "__main__":
    run(report)
