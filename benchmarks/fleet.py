"""What a fleet costs its job record: many hosts without torch on one PostgreSQL.

    python benchmarks/fleet.py [--hosts 10,50] [--jobs 10000,100000] [--out FILE]

A host is a process with the server's own lease, queue and runner and their defaults; in place of a
device its steps wait. The backlog's rows are copied from one submitted job. Hosts and record share
this machine, so that what a host or a job costs each of them is counted in statements and processor
time; a rate holds for this machine.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import common
import psycopg
import structlog
from acpc.contract import Unavailable
from acpc_server.jobs import JobOptions, JobService, Json, LeaseTerms
from acpc_server.observe import Metrics
from acpc_server.scheduling import RequestContext
from psycopg.rows import dict_row

# isort: split
from counting_jobs import Counting, CountingPlan, counting_plan
from postgres_server import PostgresServer, find_programs
from waiting import wait_until

STEPS = 10
SUBMISSIONS = 20
AT_A_TIME = 10
RAMP_SECONDS = 10.0
SETTINGS = (
    "max_connections=6000",
    "shared_preload_libraries=pg_stat_statements",
    "fsync=on",
)
# As many jobs like one as a number says: its rows with other ids, as if not yet taken up.
COPY = """
WITH made AS (SELECT number, gen_random_uuid()::text id FROM generate_series(1, %s) number),
given AS (INSERT INTO dbos.workflow_input
    SELECT (jsonb_populate_record(input, jsonb_build_object('workflow_uuid', id))).*
    FROM dbos.workflow_input input, made WHERE workflow_uuid = %s)
INSERT INTO dbos.workflow_status SELECT (jsonb_populate_record(job, jsonb_build_object(
    'workflow_uuid', id, 'created_at', job.created_at + number, 'status', 'ENQUEUED',
    'recovery_attempts', 0, 'executor_id', NULL, 'owner_xid', NULL, 'started_at_epoch_ms', NULL))).*
FROM dbos.workflow_status job, made WHERE workflow_uuid = %s"""
TERMS = LeaseTerms()
# What a host has imported before it is forked, so that hosts share that memory.
FORKED = ("acpc_server.jobs", "acpc_server.observe", "sqlalchemy.dialects.postgresql.psycopg")


class Waiting(Counting):
    """Jobs whose steps wait as long as a device would take, and record as many bytes."""

    name = "waiting"

    def _count(self, plan: CountingPlan, index: int, context: RequestContext) -> Json:
        until = time.monotonic() + plan.seconds
        while (left := until - time.monotonic()) > 0:
            context.check()
            time.sleep(min(left, 0.5))
        return {"index": index, "measured": "0" * int(plan.checkpoint)}


def host(url: str, folder: Path, pipe: Connection) -> None:
    """A host of the fleet, until its pipe is closed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    folder.mkdir()
    options = JobOptions(url, folder, max_queued=10**6)
    service = JobService([Waiting()], Metrics(), options)
    service.start()
    pipe.send(None)
    with suppress(EOFError):
        while True:
            asked, began = pipe.recv(), time.perf_counter()
            while True:
                try:
                    job_id = service.submit(*asked).job_id
                    break
                except Unavailable as error:  # as a client does
                    time.sleep(error.retry_after or 1.0)
            pipe.send((job_id, time.perf_counter() - began))
    service.stop()


@dataclass(frozen=True)
class Spent:
    """Since the start: statements that PostgreSQL ran, and seconds of processors."""

    moment: float
    statements: int
    record_seconds: float
    hosts_seconds: float
    steps: int


def _with_children(pid: int) -> float:
    """Processor seconds of a process, its children, and those that it has had."""
    ended = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
    seconds = sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")
    for one in (pid, *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with suppress(
            FileNotFoundError, ProcessLookupError
        ):  # ended just now, and counted next time
            seconds += sum(common.processor_seconds(int(one)))
    return seconds


class Fleet:
    """Hosts on a record of their own."""

    def __init__(self, postgres: PostgresServer, folder: Path, count: int) -> None:
        self.url = postgres.new_database()
        self._postgres = postgres
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*FORKED])
        self._hosts: list[tuple[Any, Connection]] = []
        self._start([folder / "host-0"])  # which makes the tables
        for first in range(1, count, AT_A_TIME):
            numbers = range(first, min(first + AT_A_TIME, count))
            self._start([folder / f"host-{number}" for number in numbers])
        self.connection = psycopg.connect(self.url, autocommit=True, row_factory=dict_row)
        self.ask("CREATE EXTENSION pg_stat_statements")

    def _start(self, folders: Sequence[Path]) -> None:
        begun = []
        for folder in folders:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(
                target=host, args=(self.url, folder, theirs), daemon=True
            )
            process.start()
            theirs.close()
            begun.append((process, ours))
        self._hosts += begun
        for _, pipe in begun:
            pipe.recv()

    def ask(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows that answer a query."""
        cursor = self.connection.execute(query.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def submit(self, plan: CountingPlan, request: str) -> tuple[str, float]:
        """The id of a job that the first host is given, and the seconds that took."""
        pipe = self._hosts[0][1]
        pipe.send((plan, request))
        found: tuple[str, float] = pipe.recv()
        return found

    def spent(self) -> Spent:
        """What was spent until now."""
        (row,) = self.ask(
            "SELECT sum(calls)::bigint AS statements, (SELECT count(*) FROM "
            "dbos.operation_outputs) AS steps, (SELECT count(*) FROM dbos.workflow_status WHERE "
            "status = 'SUCCESS') AS jobs FROM pg_stat_statements(false) WHERE dbid = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        hosts = [sum(common.processor_seconds(process.pid)) for process, _ in self._hosts]
        record = _with_children(self._postgres.pid)
        return Spent(time.monotonic(), record_seconds=record, hosts_seconds=sum(hosts), **row)

    def backlog(self, jobs: int, plan: CountingPlan) -> list[float]:
        """Queues jobs; seconds that some more submissions take, each."""
        job_id, _ = self.submit(plan, f"first of {jobs}")
        self.ask(COPY, jobs - 1, job_id, job_id)
        self.ask("ANALYZE dbos.workflow_status")
        return [self.submit(plan, f"{jobs} {n}")[1] for n in range(SUBMISSIONS)]

    def unfinished(self) -> int:
        """How many jobs wait or run."""
        query = "SELECT count(*) AS jobs FROM dbos.workflow_status WHERE status <> 'SUCCESS'"
        return int(self.ask(query)[0]["jobs"])

    def clear(self) -> None:
        """Forgets the jobs that wait, and lets the others end."""
        self.ask("DELETE FROM dbos.workflow_status WHERE status = 'ENQUEUED'")
        wait_until(lambda: not self.unfinished(), pause=1.0)

    def find_dead(self) -> dict[str, float]:
        """Kills a host that runs jobs; seconds until the record says that it holds none."""
        query = "SELECT executor_id AS host FROM dbos.workflow_status WHERE status = 'PENDING'"
        held: Counter[str] = Counter()

        def busy() -> bool:
            held.update({row["host"] for row in self.ask(query)} - {"host-0"})
            return bool(held)

        wait_until(busy, "no host runs a job")
        name = next(iter(held))
        process, _ = self._hosts.pop(int(name.removeprefix("host-")))
        process.kill()
        process.join()
        killed = time.monotonic()
        jobs = sum(row["host"] == name for row in self.ask(query))
        wait_until(lambda: all(row["host"] != name for row in self.ask(query)), pause=0.2)
        return {"jobs": jobs, "seconds": time.monotonic() - killed}

    def close(self) -> None:
        """Ends every host."""
        self.connection.close()
        for process, pipe in self._hosts:
            pipe.close()
            process.terminate()
        for process, _ in self._hosts:
            process.join()


def idle(fleet: Fleet, count: int, seconds: float) -> dict[str, float]:
    """What a host costs that has nothing to do, a second."""
    before = fleet.spent()
    time.sleep(seconds)
    after = fleet.spent()
    each = count * (after.moment - before.moment)
    return {
        "statements": (after.statements - before.statements) / each,
        "record_ms": 1000 * (after.record_seconds - before.record_seconds) / each,
        "host_ms": 1000 * (after.hosts_seconds - before.hosts_seconds) / each,
    }


def working(
    fleet: Fleet, count: int, seconds: float, plan: CountingPlan, alone: Mapping[str, float]
) -> dict[str, Any]:
    """What a job costs beyond what its host does ``alone``, and how many end, with a backlog."""
    before = fleet.spent()
    time.sleep(seconds)
    after = fleet.spent()
    lasted = after.moment - before.moment
    jobs = (after.steps - before.steps) / STEPS
    spent = {
        "statements": after.statements - before.statements,
        "record_ms": 1000 * (after.record_seconds - before.record_seconds),
        "host_ms": 1000 * (after.hosts_seconds - before.hosts_seconds),
    }
    return {
        "jobs_per_second": jobs / lasted,
        "of_what_steps_allow": jobs / lasted * STEPS * plan.seconds / count,
        "a_job": {of: (all_ - alone[of] * count * lasted) / jobs for of, all_ in spent.items()},
        "record_cores": spent["record_ms"] / 1000 / lasted,
        "hosts_cores": spent["host_ms"] / 1000 / lasted,
    }


def at(postgres: PostgresServer, folder: Path, count: int, given: Mapping[str, Any]) -> Json:
    """Everything of one number of hosts."""
    plan = counting_plan(STEPS, given["step"], checkpoint=f"{given['step_bytes']}")
    with closing(Fleet(postgres, folder, count)) as fleet:
        time.sleep(given["settle"])
        report: Json = {"idle": idle(fleet, count, given["seconds"]), "backlog": {}}
        for jobs in map(int, given["jobs"].split(",")):
            fleet.clear()
            submitting = fleet.backlog(jobs, plan)
            time.sleep(RAMP_SECONDS)
            found = working(fleet, count, given["seconds"], plan, report["idle"])
            submission_ms = 1000 * statistics.median(submitting)
            report["backlog"][f"{jobs}"] = found | {"submission_ms": submission_ms}
            print(count, jobs, report["backlog"][f"{jobs}"], file=sys.stderr, flush=True)
        report["dead_host"] = fleet.find_dead()
    return report


def report(
    hosts: str = "10,50",
    jobs: str = "10000,100000",
    step: float = 1.0,
    step_bytes: int = 42_000,
    settle: float = 75.0,
    seconds: float = 30.0,
) -> dict[str, Any]:
    """Jobs of steps of so many seconds and recorded bytes; each figure over ``seconds``."""
    programs = find_programs()
    if programs is None:
        sys.exit("no PostgreSQL: apt-get install postgresql")
    given = {"jobs": jobs, "step": step, "step_bytes": step_bytes, "settle": settle}
    found = {}
    with tempfile.TemporaryDirectory() as name, PostgresServer(programs, *SETTINGS) as postgres:
        for count in hosts.split(","):
            (folder := Path(name) / count).mkdir()
            found[count] = at(postgres, folder, int(count), given | {"seconds": seconds})
    return {"steps": STEPS, "step_seconds": step, "step_bytes": step_bytes, "hosts": found}


if __name__ == "__main__":
    common.run(report)
