"""Interactive latency, throughput and overload of a real server on the demo's model.

    python benchmarks/interactive.py [--seconds 6] [--only overload] [--runs 10] [--out FILE]

Parts: ``merging`` (32 callers of pairs, merged and not), ``job`` (a pair's p99 beside a job),
``overload`` (ten times the capacity). Ratios are within one run; absolute figures belong to the
machine. What one call costs beside a plain script is ``plain.py``'s.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from acpc.contract import DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_client import AcpcClient, JobState
from common import (
    CHECKPOINTS,
    ROUNDS,
    WORLD,
    Spent,
    alternated,
    memory,
    processor_time,
    ratio,
    run,
    spread,
)
from dataset import write_dataset
from load import PAIR, closed_loop, loader, open_loop, quantiles
from server_process import ServerProcess

MODEL, NOISE = "two-room-base", GaussianNoise(0.08)
CANDIDATES, HORIZON, ELITES = 64, 5, 8
CALLERS, VIEWS = 32, (1, 4)  # of ComparePair, merged and not; views of each pair
OVERLOAD_DRAWS, DEADLINE = 48, 0.5


def throughput(
    address: str, callers: int, seconds: float, draws: int, method: str = PAIR
) -> dict[str, Any]:
    """Closed loop of many callers; how evenly they were served."""
    arguments = (address, MODEL, callers, seconds, draws, method)
    found = loader().submit(closed_loop, *arguments).result()
    counts = [len(latencies) for latencies in found]
    return {
        "per_second": sum(counts) / seconds,
        "latency": quantiles([x for latencies in found for x in latencies]),
        "fewest_per_caller": min(counts),
        "most_per_caller": max(counts),
    }


def merging(roots: tuple[Path, Path], folder: Path, seconds: float) -> dict[str, Any]:
    """What merging gains 32 callers, in turns of two servers: by processor time and the clock."""
    loads = {f"pairs of {views} views": (views, PAIR) for views in VIEWS}
    found: dict[str, Any] = {}
    alone = {"ACPC_MERGE_REQUESTS": "false"}
    with (
        ServerProcess(*roots, folder / "alone", environment=alone) as other,
        ServerProcess(*roots, folder / "together") as server,
    ):
        servers = {"merged": server, "alone": other}
        for one in servers.values():
            throughput(one.address, 4, 2.0, 4)  # warm
        for name, (views, method) in loads.items():
            seen: dict[str, list[dict[str, Any]]] = {way: [] for way in servers}

            def turn(way: str, load: tuple[int, str], seen: Any) -> Spent:  # noqa: ANN401
                before = processor_time(servers[way].pid)
                one = throughput(servers[way].address, CALLERS, seconds, *load)
                used = processor_time(servers[way].pid) - before
                one["server_ms_a_call"] = 1e3 * used / one["latency"]["count"]
                seen[way].append(one)
                return Spent(one["server_ms_a_call"], 1e3 / one["per_second"])

            ways = {way: partial(turn, way, (views, method), seen) for way in servers}
            took = alternated(ways)
            middle = {
                way: sorted(turns, key=lambda one: one["per_second"])[len(turns) // 2]
                for way, turns in seen.items()
            }
            found[name] = {**middle, "ratio": ratio(took["alone"], took["merged"])}
    return found


def beside_a_job(address: str, seconds: float) -> dict[str, Any]:
    """One caller's latency on an idle server, and while a checkpoint job runs, in turns."""
    turns = []
    for _ in range(ROUNDS):
        idle = throughput(address, 1, seconds, 1)["latency"]
        with AcpcClient(address) as client:
            anchors = DatasetAnchors("two-room.h5", "two-room.yaml", count=2000)
            job = client.score_checkpoint(MODEL, anchors, NOISE, protocol=ScoreProtocol(draws=5))
            while job.operation().state is JobState.QUEUED or job.progress().completed < 2:
                time.sleep(0.1)
            before = job.progress().completed
            busy = throughput(address, 1, seconds, 1)["latency"]
            steps = job.progress().completed - before
            job.cancel()
        turns.append({"idle": idle, "beside_job": busy, "job_steps_meanwhile": steps})
    ratios = [one["beside_job"]["p99_ms"] / one["idle"]["p99_ms"] for one in turns]
    return {**turns[-1], "p99_ratio": spread(ratios)}


def overload(server: ServerProcess, capacity: float, seconds: float) -> dict[str, Any]:
    """Ten times the capacity, open loop; then the rate at which calls are answered as before."""
    peak = memory(server.pid, "VmHWM")
    arguments = (server.address, MODEL, 10 * capacity, seconds, DEADLINE, OVERLOAD_DRAWS)
    seen = loader().submit(open_loop, *arguments).result()
    time.sleep(1.0)
    rejected, answered = (seen.get(x, []) for x in ("RESOURCE_EXHAUSTED", "OK"))
    count = sum(map(len, seen.values()))
    return {
        "answers": {code: quantiles(values) for code, values in seen.items()},
        "neither_answered_nor_rejected": count - len(rejected) - len(answered),
        "rejected": quantiles(rejected) if rejected else None,
        "peak_growth_bytes": memory(server.pid, "VmHWM") - peak,
        "answered_in_time_per_second": len(answered) / seconds,
        "after_per_second": throughput(server.address, 8, 2.0, OVERLOAD_DRAWS)["per_second"],
    }


def overloads(server: ServerProcess, seconds: float, runs: int) -> dict[str, Any]:
    """Several overloads, and the worst of them."""
    capacity = throughput(server.address, 8, seconds, OVERLOAD_DRAWS)["per_second"]
    found = [overload(server, capacity, seconds) for _ in range(runs)]
    return {
        "capacity_per_second": capacity,
        "offered_per_second": 10 * capacity,
        "runs": found,
        "worst_rejected_p99_ms": max((one["rejected"] or {}).get("p99_ms", 0.0) for one in found),
        "neither_in_all_runs": sum(one["neither_answered_nor_rejected"] for one in found),
    }


def report(
    seconds: float = 6.0,
    runs: int = 10,
    only: str = "merging,job,overload",
) -> dict[str, Any]:
    """Each load lasts ``seconds``; ``runs`` overloads; parts joined by commas."""
    parts, found = set(only.split(",")), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        write_dataset(folder / "data" / "two-room.h5")
        (folder / "data" / "two-room.yaml").write_bytes((WORLD / "two-room.yaml").read_bytes())
        roots = (CHECKPOINTS, folder / "data")
        if "merging" in parts:
            found["merging"] = merging(roots, folder, seconds)
        # A small cache of latents, full before the overload, whose memory is to stay flat.
        small_cache = {"ACPC_CHECKPOINT_BUDGET_MIB": "64"}  # and 4 of latents
        with ServerProcess(*roots, folder / "state", environment=small_cache) as server:
            if "job" in parts:
                found["job"] = beside_a_job(server.address, seconds)
            if "overload" in parts:
                found["overload"] = overloads(server, seconds, runs)
    return found


if __name__ == "__main__":
    run(report)
