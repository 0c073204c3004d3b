"""Processor time of servers that nobody asks anything: on SQLite, on PostgreSQL.

As a share of one core over a minute, once they have had nothing to do for a while; and the busiest
threads, with how often they woke. They stand beside each other.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import common
from postgres_server import PostgresServer, find_programs
from server_process import ServerProcess

Threads = dict[str, tuple[float, int]]


def threads(pid: int) -> Threads:
    """Processor seconds and voluntary switches of each thread of a process."""
    found: Threads = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        spent = int((task / "schedstat").read_text().split()[0]) / 1e9
        switches = (task / "status").read_text().split("\nvoluntary_ctxt_switches:")[1]
        found[task.name] = spent, int(switches.split()[0])
    return found


def spent(before: Threads, after: Threads, lasted: float) -> dict[str, object]:
    """What a server spends while nobody asks."""
    used = {name: now[0] - before.get(name, (0.0, 0))[0] for name, now in after.items()}
    woken = {name: now[1] - before.get(name, (0.0, 0))[1] for name, now in after.items()}
    busiest = sorted(used, key=lambda name: -used[name])[:6]
    return {
        "percent_of_a_core": 100 * sum(used.values()) / lasted,
        "wakes_per_second": sum(woken.values()) / lasted,
        "busiest_threads": [
            {"percent": 100 * used[name] / lasted, "wakes_per_second": woken[name] / lasted}
            for name in busiest
        ],
    }


def report(settle: float = 75.0, seconds: float = 60.0) -> dict[str, object]:
    """Measures all at a time for some seconds, so many after they have begun to settle."""
    # In its first minute DBOS looks for schedules every second, as after every start.
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        (folder / "data").mkdir()
        flags: dict[str, dict[str, object]] = {"sqlite": {}}
        if programs := find_programs():
            database = running.enter_context(PostgresServer(programs))
            flags["postgresql"] = {"jobs_url": database.new_database()}
        roots = common.CHECKPOINTS, folder / "data"
        servers = {
            which: running.enter_context(ServerProcess(*roots, folder / which, **given_flags))
            for which, given_flags in flags.items()
        }
        time.sleep(settle)
        before = {which: threads(server.pid) for which, server in servers.items()}
        begun = time.monotonic()
        time.sleep(seconds)
        lasted = time.monotonic() - begun
        return {
            which: spent(before[which], threads(server.pid), lasted)
            for which, server in servers.items()
        }


if __name__ == "__main__":
    common.run(report)
