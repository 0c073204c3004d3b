"""Processor time of a server that nobody asks anything, on SQLite and on PostgreSQL.

As a share of one core over a minute, once it has had nothing to do for a while; and the busiest
threads, with how often they woke.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import common
from postgres_server import PostgresServer, find_programs
from server_process import ServerProcess

Threads = dict[str, tuple[float, int]]


def threads(pid: int) -> Threads:
    """Processor seconds and voluntary switches of each thread, by its id."""
    found: Threads = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        spent = int((task / "schedstat").read_text().split()[0]) / 1e9
        switches = (task / "status").read_text().split("\nvoluntary_ctxt_switches:")[1]
        found[task.name] = spent, int(switches.split()[0])
    return found


def measured(pid: int, settle: float, seconds: float) -> dict[str, object]:
    """What a server spends while nobody asks."""
    time.sleep(settle)
    before, begun = threads(pid), time.monotonic()
    time.sleep(seconds)
    after, lasted = threads(pid), time.monotonic() - begun
    spent = {name: now[0] - before.get(name, (0.0, 0))[0] for name, now in after.items()}
    woken = {name: now[1] - before.get(name, (0.0, 0))[1] for name, now in after.items()}
    busiest = sorted(spent, key=lambda name: -spent[name])[:6]
    return {
        "percent_of_a_core": 100 * sum(spent.values()) / lasted,
        "wakes_per_second": sum(woken.values()) / lasted,
        "busiest_threads": [
            {"percent": 100 * spent[name] / lasted, "wakes_per_second": woken[name] / lasted}
            for name in busiest
        ],
    }


def main() -> None:
    """Measures both records."""
    parser = common.parser(__doc__, "idle")
    parser.add_argument("--settle", type=float, default=45.0, help="seconds before it is idle")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()

        def idle(state: str, **flags: object) -> dict[str, object]:
            roots = common.CHECKPOINTS, folder / "data", folder / state
            with ServerProcess(*roots, **flags) as server:
                return measured(server.pid, given.settle, given.seconds)

        report = {"sqlite": idle("sqlite")}
        if programs := find_programs():
            with PostgresServer(programs) as database:
                report["postgresql"] = idle("postgresql", jobs_url=database.new_database())
    common.publish(report, given.out)


if __name__ == "__main__":
    main()
