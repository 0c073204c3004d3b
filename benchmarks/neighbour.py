"""What a checkpoint job of about a second takes on a machine that others keep busy.

    python benchmarks/neighbour.py [--anchors 100] [--busy 8]

Writes build/benchmarks/neighbour.json. A real server with its default settings runs the same job on
an otherwise idle machine and beside processes that compute without end. On c cores beside b of them
a fair scheduler gives one thread c / (b + 1) of a core.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from acpc_client import AcpcClient
from common import CHECKPOINTS, WORLD, run
from scaling import seconds, submit, write_world
from server_process import ServerProcess

GOAL_SECONDS = 8.0
# By itself a server takes every core; the tests' servers are given one thread.
DEFAULTS = {"OMP_NUM_THREADS": str(os.cpu_count())}


@contextlib.contextmanager
def busy_machine(processes: int) -> Iterator[None]:
    """So many processes compute until the block ends, each in a session of its own.

    Linux may share a processor between sessions first; the server has one of its own, too.
    """
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def report(anchors: int = 100, busy: int = 8) -> dict[str, object]:
    """The job alone, and beside so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "two-room.yaml").write_text((WORLD / "two-room.yaml").read_text())
        write_world(root / "small.h5", 1)
        server = ServerProcess(
            CHECKPOINTS, root, root / "state", environment=DEFAULTS, torch_threads=0
        )
        with server, AcpcClient(server.address) as client:
            seconds(submit(client, 50))  # loads the checkpoint
            idle = min(seconds(submit(client, anchors, seed=seed)) for seed in (1, 2, 3))
            with busy_machine(busy):
                beside = [seconds(submit(client, anchors, seed=seed)) for seed in (4, 5)]
    return {
        "anchors": anchors,
        "busy_processes": busy,
        "idle_seconds": idle,
        "busy_seconds": beside,
        "goal_seconds": GOAL_SECONDS,
        "within_goal": max(beside) <= GOAL_SECONDS,
    }


if __name__ == "__main__":
    run(report)
