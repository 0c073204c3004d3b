"""Jobs under kill -9 and on several hosts: real servers, SQLite, and a real PostgreSQL.

    python benchmarks/durability.py [--kills 20] [--jobs 200]

Needs PostgreSQL's programs (apt-get install postgresql). Every server is a process of its own with
one CPU thread. Ends with 1 when a promise is broken: a job lost or doubled, other bytes, more
repeated shards than kills.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from common import parser, publish
from job_hosts import Hosts, small
from job_world import JobWorld, job, metadata, write_job_world
from kill_series import run_series, sweep
from postgres_server import PostgresServer, find_programs
from server_process import ServerProcess

SWEEP_JOBS = 14
ROOMS = {"dataset": "rooms.h5", "task": "tworoom", "count": 95}


def kill_at_random(world: JobWorld, kills: int) -> dict[str, Any]:
    """One server on SQLite, killed at random moments while it works through a sweep."""
    requests = sweep(SWEEP_JOBS, anchors=95, draws=40)
    moment = random.Random(2026)  # noqa: S311
    with world.server("left-alone") as server:
        alone = run_series(server, requests)
    with world.server("killed") as server:
        killed = run_series(server, requests, [partial(_kill, server, moment)] * kills)
    return {
        "jobs": len(requests),
        "kills": kills,
        "kills_while_a_job_ran": killed.hits,
        "jobs_ended": len(killed.responses),
        "bytes_identical": killed.responses == alone.responses,
        "steps": len(alone.measured),
        "steps_repeated": killed.repeated,
        "undisturbed_seconds": alone.wall_seconds,
        "disturbed_seconds": killed.wall_seconds,
        "kept": killed.responses == alone.responses
        and killed.repeated <= kills
        and len(killed.measured) == len(alone.measured),
    }


def _kill(server: ServerProcess, moment: random.Random) -> None:
    """End a life up to two seconds after it begins to measure."""
    server.wait_for_log(lambda line: line["event"] == "job_started")
    time.sleep(moment.uniform(0.0, 2.0))
    server.kill()


def take_over(world: JobWorld, url: str) -> dict[str, Any]:
    """Three servers at the default lease; the one that runs a job is killed for good."""
    with Hosts(world, url) as hosts:
        caller = hosts.caller(hosts.servers[0])
        request = job("", dataset=ROOMS, protocol={"draws": 40})
        alone = caller.finished(caller.submit(request).name)
        name = caller.submit(request).name
        victim = hosts.runner(name, 3)
        victim.kill()
        killed = time.monotonic()
        survivors = hosts.others(victim)
        job_id = name.split("/")[1]
        while not any(
            line["event"] == "job_started" and line["job"] == job_id
            for server in survivors
            for line in server.log()
        ):
            time.sleep(0.01)
        taken = time.monotonic() - killed
        done = hosts.caller(survivors[0]).finished(name, 600)
        steps = Counter(line["step"] for _, line in hosts.lines("job_step", name))
        repeated = sum(steps.values()) - len(steps)
    identical = done.response == alone.response
    return {
        "seconds_until_taken_over": taken,
        "seconds_until_done": time.monotonic() - killed,
        "attempts": metadata(done).attempts,
        "steps_repeated": repeated,
        "bytes_identical": identical,
        "kept": identical and taken < 60 and repeated <= 1,
    }


def small_jobs(world: JobWorld, url: str, jobs: int, count: int) -> dict[str, Any]:
    """Many small jobs, submitted to all hosts in turn."""
    with Hosts(world, url, count) as hosts:
        callers = [hosts.caller(server) for server in hosts.servers]
        for caller in callers:  # every host has its checkpoint loaded
            caller.finished(caller.submit(small("", 10**6)).name)
        began = time.monotonic()
        names = [callers[seed % count].submit(small("", seed)).name for seed in range(jobs)]
        done = [callers[0].finished(name, 600) for name in names]
        wall = time.monotonic() - began
        lines = [line for server in hosts.servers for line in server.log()]
    ids = [name.split("/")[1] for name in names]
    succeeded = sum(operation.WhichOneof("result") == "response" for operation in done)
    times = Counter((line["event"], line.get("job")) for line in lines)
    once = all(times[event, x] == 1 for event in ("job_started", "job_ended") for x in ids)
    return {
        "hosts": count,
        "jobs": jobs,
        "succeeded": succeeded,
        "each_run_once": once,
        "wall_seconds": wall,
        "jobs_per_second": jobs / wall,
        "kept": succeeded == jobs and once,
    }


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "durability")
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--jobs", type=int, default=200, help="small jobs on three hosts")
    options = arguments.parse_args()
    programs = find_programs()
    if programs is None:
        sys.exit("no PostgreSQL: apt-get install postgresql")
    with tempfile.TemporaryDirectory() as folder, PostgresServer(programs) as postgres:
        made = iter(range(100))

        def world() -> JobWorld:
            return write_job_world(Path(folder) / str(next(made)))

        report = {
            "kill_9": kill_at_random(world(), options.kills),
            "takeover": take_over(world(), postgres.new_database()),
            "small_jobs": small_jobs(world(), postgres.new_database(), options.jobs, 3),
        }
    publish(report, options.out)
    sys.exit(not all(report[part]["kept"] for part in ("kill_9", "takeover", "small_jobs")))


if __name__ == "__main__":
    main()
