"""Interactive latency, throughput and overload of a real server on the demo's model.

    python benchmarks/interactive.py [--seconds 6] [--out build/benchmarks/interactive.json]

Ratios are within one run; absolute figures belong to the machine.
"""

from __future__ import annotations

import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, cast

import bare
import grpc
import numpy as np
import torch
from acpc.contract import (
    CheckpointRef,
    DatasetAnchors,
    GaussianNoise,
    PerturbationSet,
    PlanStart,
    ScoreProtocol,
)
from acpc_client import AcpcClient, JobState
from acpc_server.engine import CheckpointCache, DeviceEngine
from acpc_server.interactive.certify import certify_pool
from acpc_server.interactive.planning import Planner
from acpc_server.models.folder import CheckpointLimits
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from common import CHECKPOINTS, WORLD, memory, parser, processor_seconds, publish
from dataset import write_dataset
from load import (
    HISTORY,
    PAIR,
    POOL,
    SIDE,
    WIDTH,
    Seen,
    closed_loop,
    elsewhere,
    open_loop,
    quantiles,
)
from server_process import ServerProcess

MODEL = "two-room-base"
CANDIDATES, HORIZON, ELITES = 64, 5, 8
CALLERS, VIEWS = 32, (1, 4)  # of ComparePair, merged and not; views of each pair
# Messages of that pool, and about what it takes, of a server that only computes.
REQUEST_BYTES, ANSWER_BYTES, BARE_SECONDS = 25_300, 4_240, 0.02
PRIMITIVES = {PAIR: "pair", POOL: "pool"}  # device calls of a method, in the metrics


def pool_overhead(address: str, sockets: str, rounds: int) -> dict[str, Any]:
    """CertifyPool of 64 candidates x 5 steps by TCP and by a Unix socket, and in process.

    Overheads are medians of differences to the call in process of the same turn, and beside them
    what gRPC alone takes for messages of these sizes with as much computing between them.
    """
    rng = np.random.default_rng(0)
    history = rng.integers(0, 256, (HISTORY, SIDE, SIDE, 3), dtype=np.uint8)
    past = rng.standard_normal((HISTORY - 1, WIDTH)).astype(np.float32)
    goal = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    pools = rng.standard_normal((rounds, CANDIDATES, HORIZON, WIDTH)).astype(np.float32)
    metrics = Metrics()
    device = torch.device("cpu")
    engine = DeviceEngine(device, metrics)
    cache = CheckpointCache(
        CHECKPOINTS,
        device,
        metrics,
        limits=CheckpointLimits(),
        budget_bytes=2**30,
    )
    checkpoint = cache.get(MODEL)
    planner = Planner(engine, max_frames=1536, max_predictions=2**24)

    def in_process(seed: int, pool: np.ndarray) -> float:
        started = time.perf_counter()
        context = RequestContext(Priority.INTERACTIVE)
        request = PlanStart(
            checkpoint=CheckpointRef(MODEL),
            history=history,
            past_blocks=past,
            goal=goal,
            views=PerturbationSet((GaussianNoise(sigma=0.08),), 1, seed),
            elite_count=ELITES,
        )
        session = planner.prepare(checkpoint, request)
        planner.encode(session, context)
        certify_pool(session, pool, context)
        return time.perf_counter() - started

    plain = f"{sockets}.plain"
    with (
        AcpcClient(address) as by_port,
        AcpcClient(sockets) as by_socket,
        bare.served(plain, BARE_SECONDS, ANSWER_BYTES) as plain_address,
        grpc.insecure_channel(plain_address) as plain_port,
        grpc.insecure_channel(plain) as plain_socket,
    ):

        def over_wire(client: AcpcClient, seed: int, pool: np.ndarray) -> float:
            started = time.perf_counter()
            client.certify_pool(
                MODEL,
                history,
                pool,
                goal,
                past_blocks=past,
                perturbations=GaussianNoise(0.08),
                seed=seed,
                elite_count=ELITES,
            )
            return time.perf_counter() - started

        # In turn, so that all see the same machine; no seed twice, so that none is in the cache.
        ways = ("wire", "unix", "in_process", "grpc_alone", "grpc_alone_unix")
        seen: dict[str, list[float]] = {way: [] for way in ways}
        for seed, pool in enumerate(pools):
            seen["wire"].append(over_wire(by_port, 2 * seed, pool))
            seen["unix"].append(over_wire(by_socket, 2 * seed + 1, pool))
            seen["in_process"].append(in_process(2 * seed, pool))
            seen["grpc_alone"].append(bare.overhead(plain_port, REQUEST_BYTES))
            seen["grpc_alone_unix"].append(bare.overhead(plain_socket, REQUEST_BYTES))
    engine.close()
    warm = {way: np.array(seconds[rounds // 10 :]) for way, seconds in seen.items()}
    return {
        **{way: quantiles(list(seconds)) for way, seconds in warm.items()},
        "overhead_p50_ms": 1e3 * np.median(warm["wire"] - warm["in_process"]),
        "unix_overhead_p50_ms": 1e3 * np.median(warm["unix"] - warm["in_process"]),
    }


def throughput(
    address: str, callers: int, seconds: float, draws: int, method: str = PAIR
) -> dict[str, Any]:
    """Closed loop of many callers; how evenly they were served."""
    arguments = (address, MODEL, callers, seconds, draws, method)
    found = cast("list[list[float]]", elsewhere(closed_loop, *arguments))
    counts = [len(latencies) for latencies in found]
    return {
        "per_second": sum(counts) / seconds,
        "latency": quantiles([x for latencies in found for x in latencies]),
        "fewest_per_caller": min(counts),
        "most_per_caller": max(counts),
    }


def shared(server: ServerProcess, seconds: float, draws: int, method: str = PAIR) -> dict[str, Any]:
    """The same for 32 callers of one method, and what a call costs the server."""
    before = processor_seconds(server.pid), device_calls(server, PRIMITIVES[method])
    found = throughput(server.address, CALLERS, seconds, draws, method)
    after = processor_seconds(server.pid), device_calls(server, PRIMITIVES[method])
    count = found["latency"]["count"]
    user, system = (
        1e3 * (then - now) / count for now, then in zip(before[0], after[0], strict=True)
    )
    calls, held = (then - now for now, then in zip(before[1], after[1], strict=True))
    return {
        **found,
        "server_ms_a_call": {"user": user, "system": system, "device": held * 1e3 / count},
        "calls_per_device_call": count / calls,
    }


def device_calls(server: ServerProcess, primitive: str) -> tuple[float, float]:
    """Interactive device calls of a primitive so far, and the seconds they took."""
    address = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(address, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    labels = f'{{primitive="{primitive}",priority="interactive"}} '
    count, total = (
        sum(
            float(line.split()[-1])
            for line in lines
            if line.startswith(f"acpc_compute_seconds_{what}{labels}")
        )
        for what in ("count", "sum")
    )
    return count, total


def beside_a_job(address: str, seconds: float) -> dict[str, Any]:
    """One caller's latency on an idle server, and while checkpoint jobs run."""
    idle = throughput(address, 1, seconds, 1)
    with AcpcClient(address) as client:
        anchors = DatasetAnchors("two-room.h5", "two-room.yaml", count=2000)
        job = client.score_checkpoint(
            MODEL, anchors, GaussianNoise(0.08), protocol=ScoreProtocol(draws=5)
        )
        while job.operation().state is JobState.QUEUED or job.progress().completed < 2:
            time.sleep(0.1)
        before = job.progress().completed
        busy = throughput(address, 1, seconds, 1)
        after = job.progress().completed
        job.cancel()
    return {
        "idle": idle["latency"],
        "beside_job": busy["latency"],
        "p99_ratio": busy["latency"]["p99_ms"] / idle["latency"]["p99_ms"],
        "job_steps_meanwhile": after - before,
    }


def overload(server: ServerProcess, capacity: float, seconds: float, draws: int) -> dict[str, Any]:
    """Ten times the capacity, open loop; then the time until service is as before."""
    deadline = 0.5
    before = memory(server.pid, "VmHWM")
    arguments = (server.address, MODEL, 10 * capacity, seconds, deadline, draws)
    seen = cast("Seen", elsewhere(open_loop, *arguments))
    time.sleep(1.0)
    after = throughput(server.address, 8, 2.0, draws)["per_second"]
    refused = seen.latencies.get("RESOURCE_EXHAUSTED", [])
    return {
        "offered_per_second": 10 * capacity,
        "deadline_ms": deadline * 1e3,
        "answers": seen.summary(),
        "refused": quantiles(refused) if refused else None,
        "peak_resident_bytes": before,
        "peak_growth_bytes": memory(server.pid, "VmHWM") - before,
        "answered_in_time_per_second": len(seen.latencies.get("OK", [])) / seconds,
        "capacity_per_second": capacity,
        "capacity_one_second_after_per_second": after,
    }


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "interactive")
    arguments.add_argument("--seconds", type=float, default=6.0, help="length of each load")
    arguments.add_argument("--rounds", type=int, default=200, help="pools of the overhead part")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {"model": MODEL, "torch": torch.__version__}
    report |= {"unbatched": {}, "batched": {}, "throughput_ratio": {}}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data").mkdir()
        write_dataset(root / "data" / "two-room.h5")
        (root / "data" / "two-room.yaml").write_bytes((WORLD / "two-room.yaml").read_bytes())
        roots = (CHECKPOINTS, root / "data")
        with ServerProcess(
            *roots, root / "alone", environment={"ACPC_MERGE_REQUESTS": "false"}
        ) as server:
            throughput(server.address, 4, 2.0, 4)  # warm
            for views in VIEWS:
                report["unbatched"][str(views)] = shared(server, options.seconds, views)
            report["pools_unbatched"] = shared(server, options.seconds, 1, POOL)
        # A small cache of latents, full before the overload, whose memory is to stay flat.
        small_cache = {"ACPC_LATENT_CACHE_MIB": "4"}
        sockets = f"unix:{root / 'acpc.sock'}"
        flags = {"environment": small_cache, "listen": sockets}
        with ServerProcess(*roots, root / "state", **flags) as server:
            report["pool_64x5"] = pool_overhead(server.address, sockets, options.rounds)
            throughput(server.address, 4, 2.0, 4)  # warm
            for views in VIEWS:
                merged = shared(server, options.seconds, views)
                report["batched"][str(views)] = merged
                alone = report["unbatched"][str(views)]
                report["throughput_ratio"][str(views)] = merged["per_second"] / alone["per_second"]
            merged = report["pools_batched"] = shared(server, options.seconds, 1, POOL)
            alone = report["pools_unbatched"]
            report["pools_throughput_ratio"] = merged["per_second"] / alone["per_second"]
            report["beside_a_job"] = beside_a_job(server.address, options.seconds)
            capacity = throughput(server.address, 8, options.seconds, 48)["per_second"]
            report["overload"] = overload(server, capacity, options.seconds, 48)
    publish(report, options.out)


if __name__ == "__main__":
    main()
