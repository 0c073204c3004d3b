"""Calls answered by one worker and by two behind one port, 32 callers of ComparePair.

    python benchmarks/devices.py [--rounds 5] [--seconds 6] [--callers 32] [--draws 4] [--heavy 64]

Each worker computes with one thread. Both servers stand, and the parts alternate, so that both see
the same machine. The callers use the same cores: `server_ms` and `client_ms` say who used how much
of them a call, `ratio.calls` by processor time what two workers would answer that had their cores
to themselves, and `ratio.bound` what they could at most on the cores that there are. `heavy` is the
same with calls of so many views that the callers' share is small. Every connection is made anew
each round.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import common
from common import CHECKPOINTS, ROUNDS, Spent, alternated, ratio, run

# isort: split
import numpy as np
from acpc_client import AcpcClient, GaussianNoise
from load import HISTORY, HORIZON, SIDE, WIDTH, elsewhere, fresh_seed
from server_process import ServerProcess

MODEL = "two-room-base"
# As their clients are told to have; more cost a single worker something.
CONNECTIONS = {"cpu": 1, "cpu,cpu": 8}


def asked(
    address: str, callers: int, seconds: float, draws: int, connections: int
) -> tuple[int, float, float]:
    """Calls of the client's that were answered, the seconds they took, and its processor time."""

    def caller(index: int) -> int:
        rng = np.random.default_rng(index)
        history = rng.integers(0, 256, (HISTORY, SIDE, SIDE, 3), dtype=np.uint8)
        blocks = rng.standard_normal((HISTORY + HORIZON - 1, WIDTH), np.float32)
        calls, seed = 0, fresh_seed()
        while time.perf_counter() < end:
            client.compare_pair(
                MODEL,
                history,
                blocks,
                perturbations=GaussianNoise(0.08),
                draws=draws,
                seed=seed + calls,  # new views: no latent of them is cached
            )
            calls += 1
        return calls

    with (
        AcpcClient(address, connections=connections) as client,
        ThreadPoolExecutor(callers) as pool,
    ):
        began, used = time.perf_counter(), time.process_time()
        end = began + seconds
        calls = sum(pool.map(caller, range(callers)))
        return calls, time.perf_counter() - began, time.process_time() - used


def processor_seconds(server: ServerProcess) -> list[float]:
    """Processor time of each process that computes for a server."""
    tasks = Path(f"/proc/{server.pid}/task").glob("*/children")
    pids = [int(pid) for task in tasks for pid in task.read_text().split()]
    return [sum(common.processor_seconds(pid)) for pid in pids]


def part(
    server: ServerProcess, callers: int, seconds: float, draws: int, connections: int
) -> dict[str, float]:
    """One closed loop: calls a second, and processor time a call, milliseconds."""
    before = processor_seconds(server)
    calls, wall, client = elsewhere(asked, server.address, callers, seconds, draws, connections)  # type: ignore[misc]
    used = [b - a for a, b in zip(before, processor_seconds(server), strict=True)]
    return {
        "calls_per_second": calls / wall,
        "server_ms": 1e3 * sum(used) / calls,
        "client_ms": 1e3 * client / calls,
        "busiest_worker_share": max(used) / sum(used),
    }


def compared(
    servers: dict[str, ServerProcess], rounds: int, callers: int, seconds: float, draws: int
) -> dict[str, dict[str, float]]:
    """Medians of alternating parts of each server, and what two workers answer against one."""
    seen: dict[str, list[dict[str, float]]] = {devices: [] for devices in servers}

    def turn(devices: str) -> Spent:
        """A call: of the worker that has most to do, each on a core of its own; on the clock."""
        load = callers, seconds, draws, CONNECTIONS[devices]
        seen[devices].append(found := part(servers[devices], *load))
        busiest = found["server_ms"] * found["busiest_worker_share"]
        return Spent(busiest, 1e3 / found["calls_per_second"])

    took = alternated({devices: partial(turn, devices) for devices in servers}, rounds)
    report = {
        devices: {name: statistics.median(one[name] for one in parts) for name in parts[0]}
        for devices, parts in seen.items()
    }
    one, two = report.values()
    cores = len(os.sched_getaffinity(0))
    most = 1e3 * cores / (two["server_ms"] + two["client_ms"])
    found = {
        "calls": ratio(*took.values()),
        # All cores busy with nothing but these calls.
        "bound": most / one["calls_per_second"],
    }
    return {**report, "ratio": found}


def report(
    rounds: int = ROUNDS, seconds: float = 6.0, callers: int = 32, draws: int = 4, heavy: int = 64
) -> dict[str, object]:
    """Parts of some seconds, with so many views of each pair, and of a heavy one."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        root = Path(folder)
        servers = {
            devices: running.enter_context(
                ServerProcess(CHECKPOINTS, root, root / f"state-{len(devices)}", devices=devices)
            )
            for devices in CONNECTIONS
        }
        for server in servers.values():  # checkpoints are loaded, and connections tried
            part(server, callers, 1.0, draws, 1)
        load = servers, rounds, callers, seconds
        light = {"callers": callers, "draws": draws, **compared(*load, draws)}
        return {**light, "heavy": {"draws": heavy, **compared(*load, heavy)}}


if __name__ == "__main__":
    run(report)
