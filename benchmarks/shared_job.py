"""One large job on one and on two servers of one thread each: a real PostgreSQL, real servers.

    python benchmarks/shared_job.py [--anchors 2000] [--draws 8]

Needs PostgreSQL's programs (apt-get install postgresql), and two idle cores.
Ends with 1 when a promise is broken: other bytes, or a shard lost or measured twice.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import parser, publish

# isort: split
from job_hosts import Hosts, large, small, write_large
from job_world import JobWorld, write_job_world
from postgres_server import PostgresServer, find_programs

# The first heartbeats tell the servers of each other.
ACQUAINTED_SECONDS = 2.0


def one_job(world: JobWorld, url: str, hosts: int, anchors: int, draws: int) -> dict[str, Any]:
    """Seconds of one job, and who measured how many of its steps."""
    with Hosts(world, url, hosts) as servers:
        callers = [servers.caller(server) for server in servers.servers]
        for caller in callers:  # every host has its checkpoint loaded
            caller.finished(caller.submit(small("", 10**6)).name)
        time.sleep(ACQUAINTED_SECONDS)
        began = time.monotonic()
        name = callers[0].submit(large("", anchors, draws)).name
        done = callers[0].finished(name, 600)
        wall = time.monotonic() - began
        lines = servers.lines("job_step", name)
    steps = Counter(line["step"] for _, line in lines)
    shares = Counter(servers.servers.index(server) for server, _ in lines)
    return {
        "hosts": hosts,
        "wall_seconds": wall,
        "steps_by_host": sorted(shares.values(), reverse=True),
        "steps_repeated": sum(steps.values()) - len(steps),
        "response": done.response.SerializeToString(),
    }


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "shared_job")
    arguments.add_argument("--anchors", type=int, default=2000)
    arguments.add_argument("--draws", type=int, default=8)
    given = arguments.parse_args()
    programs = find_programs()
    if programs is None:
        sys.exit("no PostgreSQL: apt-get install postgresql")
    with tempfile.TemporaryDirectory() as folder, PostgresServer(programs) as postgres:
        world = write_large(write_job_world(Path(folder)))
        alone, shared = (
            one_job(world, postgres.new_database(), hosts, given.anchors, given.draws)
            for hosts in (1, 2)
        )
    identical = alone.pop("response") == shared.pop("response")
    report = {
        "anchors": given.anchors,
        "draws": given.draws,
        "runs": [alone, shared],
        "speedup": alone["wall_seconds"] / shared["wall_seconds"],
        "bytes_identical": identical,
        "kept": identical and not alone["steps_repeated"] + shared["steps_repeated"],
    }
    publish(report, given.out)
    sys.exit(not report["kept"])


if __name__ == "__main__":
    main()
