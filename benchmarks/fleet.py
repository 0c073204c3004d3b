"""What a fleet costs its job record: up to 200 hosts without torch on one PostgreSQL.

    python benchmarks/fleet.py [--hosts 10,50,200] [--jobs 10000,100000] [--full] [--out FILE]

A host is a process with the server's own lease, queue and runner and their defaults; in place of a
device its steps wait. Where more hosts would keep these cores busy when idle, only that is told.
The rows of a backlog are copied from one submitted job. Hosts and record share this machine, so
that what a host or a job costs each of them is counted in statements and processor time; a rate
holds for this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
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
    options = JobOptions(url, folder, folder.name, max_queued=10**6)
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
    jobs: int  # ended


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

    def submit(self, host: int, plan: CountingPlan, request: str) -> tuple[str, float]:
        """The id of a job that a host is given, and the seconds that took."""
        pipe = self._hosts[host][1]
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

    def heaviest(self) -> dict[str, float]:
        """Shares of PostgreSQL's time of the four heaviest statements since the last call."""
        rows = self.ask(
            "SELECT left(query, 200) AS query, total_exec_time / sum(total_exec_time) OVER () AS "
            "share FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname "
            "= current_database()) ORDER BY share DESC LIMIT 4"
        )
        self.ask("SELECT pg_stat_statements_reset()")
        return {" ".join(row["query"].split()): row["share"] for row in rows}

    def backlog(self, jobs: int, plan: CountingPlan) -> list[float]:
        """Queues jobs; seconds that some more submissions take, each."""
        job_id, _ = self.submit(0, plan, f"first of {jobs}")
        self.ask(COPY, jobs - 1, job_id, job_id)
        self.ask("ANALYZE dbos.workflow_status")
        numbers = range(SUBMISSIONS)
        return [self.submit(0, plan, f"{jobs} {n}")[1] for n in numbers]

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


class Waits:
    """What busy connections wait for, looked at again and again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self.seen: Counter[str] = Counter()
        self.connections = 0
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        query = (
            "SELECT state, coalesce(wait_event_type || ':' || wait_event, 'processor') AS waits "
            "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stop.wait(0.25):
                rows = connection.execute(query.encode()).fetchall()
                self.connections = max(self.connections, len(rows))
                self.seen.update(waits for state, waits in rows if state == "active")

    def __enter__(self) -> Waits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def shares(self) -> dict[str, float]:
        """The four most frequent, as shares of what was seen of busy connections."""
        return {name: n / self.seen.total() for name, n in self.seen.most_common(4)}


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
    fleet.heaviest()
    with Waits(fleet.url) as waits:
        before = fleet.spent()
        time.sleep(seconds)
        after = fleet.spent()
    lasted = after.moment - before.moment
    jobs = (after.steps - before.steps) / STEPS
    bound = count / (STEPS * plan.seconds)
    spent = {
        "statements": after.statements - before.statements,
        "record_ms": 1000 * (after.record_seconds - before.record_seconds),
        "host_ms": 1000 * (after.hosts_seconds - before.hosts_seconds),
    }
    return {
        "jobs_per_second": jobs / lasted,
        "of_what_steps_allow": jobs / lasted / bound,
        "a_job": {of: (all_ - alone[of] * count * lasted) / jobs for of, all_ in spent.items()},
        "statements_per_second": spent["statements"] / lasted,
        "record_cores": spent["record_ms"] / 1000 / lasted,
        "hosts_cores": spent["host_ms"] / 1000 / lasted,
        "heaviest": fleet.heaviest(),
        "waits": waits.shares(),
        "connections": waits.connections,
        "ended": after.jobs - before.jobs,
    }


def at(
    postgres: PostgresServer, folder: Path, count: int, given: argparse.Namespace, *, drain: bool
) -> Json:
    """Everything of one number of hosts; ``drain``: runs the last backlog to its end."""
    plan = counting_plan(STEPS, given.step, checkpoint=f"{given.bytes}")
    begun = time.monotonic()
    with closing(Fleet(postgres, folder, count)) as fleet:
        started = time.monotonic() - begun
        time.sleep(given.settle)
        report: Json = {"started_seconds": started, "idle": idle(fleet, count, given.seconds)}
        report["backlog"] = {}
        for jobs in map(int, given.jobs.split(",")):
            fleet.clear()
            submitting = fleet.backlog(jobs, plan)
            time.sleep(RAMP_SECONDS)
            found = working(fleet, count, given.seconds, plan, report["idle"])
            report["backlog"][f"{jobs}"] = found | {
                "submission_ms": 1000 * statistics.median(submitting)
            }
            print(count, jobs, report["backlog"][f"{jobs}"], file=sys.stderr, flush=True)
        report["dead_host"] = fleet.find_dead()
        if drain:
            report["drained"] = drained(fleet)
    return report


def drained(fleet: Fleet) -> Json:
    """Lets every job end; how many did, and how many have all their steps on record."""
    begun, before = time.monotonic(), fleet.spent()
    while fleet.unfinished():
        time.sleep(5.0)
    jobs = fleet.spent().jobs - before.jobs
    query = (
        "SELECT count(*) AS jobs FROM (SELECT count(*) AS steps FROM dbos.operation_outputs "
        "GROUP BY workflow_uuid) each WHERE steps = %s"
    )
    (whole,) = fleet.ask(query, STEPS)
    return {"seconds": time.monotonic() - begun, "jobs": jobs, "with_their_steps": whole["jobs"]}


def main() -> None:
    """Command line entry."""
    arguments = common.parser(__doc__, "fleet")
    arguments.add_argument("--hosts", default="10,50,200")
    arguments.add_argument("--jobs", default="10000,100000", help="lengths of the backlog")
    arguments.add_argument("--step", type=float, default=1.0, help="seconds of a step")
    arguments.add_argument("--bytes", type=int, default=42_000, help="a shard of paper size")
    arguments.add_argument("--settle", type=float, default=75.0, help="seconds before hosts idle")
    arguments.add_argument("--seconds", type=float, default=30.0, help="measured each time")
    arguments.add_argument(
        "--full", action="store_true", help="whatever the cores; the last backlog to its end"
    )
    given = arguments.parse_args()
    programs = find_programs()
    if programs is None:
        sys.exit("no PostgreSQL: apt-get install postgresql")
    with tempfile.TemporaryDirectory() as name, PostgresServer(programs, *SETTINGS) as postgres:
        hosts, counts, a_host = {}, given.hosts.split(","), 0.0
        for count in counts:
            (folder := Path(name) / count).mkdir()
            cores = int(count) * a_host
            if cores > (os.cpu_count() or 1) and not given.full:
                print(f"not run: {count} idle hosts take {cores:.1f} cores", file=sys.stderr)
                hosts[count] = {"idle_cores": cores}
                continue
            drain = given.full and count == counts[-1]
            found = hosts[count] = at(postgres, folder, int(count), given, drain=drain)
            a_host = (found["idle"]["record_ms"] + found["idle"]["host_ms"]) / 1000
            found["idle_cores"] = int(count) * a_host
    sizes = {"steps": STEPS, "step_seconds": given.step, "step_bytes": given.bytes}
    common.publish(sizes | {"lease": asdict(TERMS), "hosts": hosts}, given.out)


if __name__ == "__main__":
    main()
