"""Three servers on one record, each restarted in turn under load: what failed, what was lost.

    python benchmarks/rolling.py [--rounds 3] [--callers 3] [--lame-duck 3]

Needs PostgreSQL's programs (apt-get install postgresql). Every server is a process of its own with
one CPU thread; one client goes round them. Ends with 1 when a call failed or a job was lost.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from common import parser, publish
from job_hosts import Hosts
from job_world import write_job_world
from load import quantiles
from postgres_server import PostgresServer, find_programs
from rolling_restart import roll

TERMS = {"job_lease_seconds": 5}


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "rolling")
    arguments.add_argument("--rounds", type=int, default=3, help="restarts of each server")
    arguments.add_argument("--callers", type=int, default=3, help="callers of each kind of call")
    arguments.add_argument("--calls", type=int, default=200, help="calls between two restarts")
    arguments.add_argument("--lame-duck", type=float, help="seconds [the server's default]")
    options = arguments.parse_args()
    programs = find_programs()
    if programs is None:
        sys.exit("no PostgreSQL: apt-get install postgresql")
    flags: dict[str, object] = dict(TERMS)
    if options.lame_duck is not None:
        flags["lame_duck_seconds"] = options.lame_duck
    with tempfile.TemporaryDirectory() as folder, PostgresServer(programs) as postgres:
        world = write_job_world(Path(folder))
        flags["anchor_dir"] = Path(folder) / "anchors"
        with Hosts(world, postgres.new_database(), **flags) as hosts:
            load, away = roll(hosts, options.rounds, options.callers, options.calls)
            bugs = [bug for server in hosts.servers for bug in server.bugs()]
    report = {
        "servers": len(hosts.servers),
        "restarts": len(away),
        "seconds_away": away,
        "answered": {kind: quantiles(seconds) for kind, seconds in load.seconds.items()},
        "failed": dict(load.failures),
        "scores_of_a_seed_differ": any(len(found) > 1 for found in load.scores.values()),
        "server_bugs": len(bugs),
    }
    publish(report, options.out)
    sys.exit(bool(load.failures or bugs or report["scores_of_a_seed_differ"]))


if __name__ == "__main__":
    main()
