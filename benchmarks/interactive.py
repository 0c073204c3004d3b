"""Interactive latency, throughput and overload of a real server on the demo's model.

    python benchmarks/interactive.py [--seconds 6] [--only overload --runs 10] [--out FILE]

Ratios are within one run; absolute figures belong to the machine. Of what ``--only`` leaves out the
report keeps what an earlier one at ``--out`` has.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

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
from acpc_server.engine import CheckpointCache, DeviceClient
from acpc_server.interactive.certify import certify_pool
from acpc_server.interactive.planning import Planner
from acpc_server.models.folder import CheckpointLimits
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from common import (
    CHECKPOINTS,
    ROUNDS,
    WORLD,
    Spent,
    alternated,
    memory,
    parser,
    processor_seconds,
    processor_time,
    publish,
    ratio,
    spread,
)
from dataset import write_dataset
from load import (
    HISTORY,
    PAIR,
    POOL,
    SIDE,
    WIDTH,
    closed_loop,
    loader,
    open_loop,
    quantiles,
)
from server_process import ServerProcess

MODEL = "two-room-base"
PARTS = ("pairs", "pools", "overhead", "job", "overload")
CANDIDATES, HORIZON, ELITES = 64, 5, 8
CALLERS, VIEWS = 32, (1, 4)  # of ComparePair, merged and not; views of each pair
# Messages of that pool, and about what it takes, of a server that only computes.
REQUEST_BYTES, ANSWER_BYTES, BARE_SECONDS = 25_300, 4_240, 0.02
# After a call, for what a server does about it once it is answered; and to see an idle server.
SETTLE_SECONDS, IDLE_SECONDS = 0.003, 3.0
PRIMITIVES = {PAIR: "pair", POOL: "pool"}  # device calls of a method, in the metrics


def spent(ask: Callable[[], tuple[float, float]], pid: int, idle: float) -> tuple[float, float]:
    """Seconds of one call, and of processor time here and in its server, beyond what it returns.

    ``idle`` is what the server uses per second without calls; a ``pid`` of 0 is no server's.
    """

    def used() -> float:
        return time.process_time() + (processor_time(pid) if pid else 0.0)

    before, started = used(), time.perf_counter()
    wall, processor = ask()
    wall = time.perf_counter() - started - wall
    time.sleep(SETTLE_SECONDS)
    lasted = time.perf_counter() - started
    return wall, used() - before - processor - idle * lasted


def idle_rate(pid: int) -> float:
    """Processor seconds per second of a server without calls."""
    before, started = processor_time(pid), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return (processor_time(pid) - before) / (time.perf_counter() - started)


def quartiles(seconds: np.ndarray) -> dict[str, float]:
    """The median and both quartiles, in milliseconds, as a page shows a spread."""
    names = ("least", "median", "most")
    return dict(zip(names, (1e3 * np.quantile(seconds, (0.25, 0.5, 0.75))).tolist(), strict=True))


def pool_overhead(server: ServerProcess, sockets: str, rounds: int) -> dict[str, Any]:
    """CertifyPool of 64 candidates x 5 steps by TCP and by a Unix socket, and in process.

    Overheads are medians of differences to the call in process of the same turn, and beside them
    what gRPC alone takes for messages of these sizes with as much computing between them: by the
    clock, and in processor time of both processes.
    """
    rng = np.random.default_rng(0)
    history = rng.integers(0, 256, (HISTORY, SIDE, SIDE, 3), dtype=np.uint8)
    past = rng.standard_normal((HISTORY - 1, WIDTH)).astype(np.float32)
    goal = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    pools = rng.standard_normal((rounds, CANDIDATES, HORIZON, WIDTH)).astype(np.float32)
    metrics = Metrics()
    device = torch.device("cpu")
    engine = DeviceClient(device, metrics)
    cache = CheckpointCache(
        CHECKPOINTS,
        device,
        metrics,
        limits=CheckpointLimits(),
        budget_bytes=2**30,
    )
    checkpoint = cache.get(MODEL)
    planner = Planner(engine, max_frames=1536, max_predictions=2**24)

    def in_process(seed: int, pool: np.ndarray) -> tuple[float, float]:
        context = RequestContext(Priority.INTERACTIVE)
        request = PlanStart(
            checkpoint=CheckpointRef(MODEL),
            history=history,
            past_blocks=past,
            goal=goal,
            views=PerturbationSet((GaussianNoise(sigma=0.08),), 1, seed),
            elite_count=ELITES,
        )
        session = planner.encode(planner.prepare(checkpoint, request), context)
        certify_pool(session, pool, context)
        return 0.0, 0.0

    plain = f"{sockets}.plain"
    with (
        AcpcClient(server.address) as by_port,
        AcpcClient(sockets) as by_socket,
        bare.served(plain, BARE_SECONDS, ANSWER_BYTES) as (plain_address, plain_pid),
        grpc.insecure_channel(plain_address) as plain_port,
        grpc.insecure_channel(plain) as plain_socket,
    ):

        def over_wire(client: AcpcClient, seed: int, pool: np.ndarray) -> tuple[float, float]:
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
            return 0.0, 0.0

        # In turn, so that all see the same machine, and each of them first as often as the others,
        # since the first finds caches that others have filled; no seed twice: none is in the cache.
        own, idle = server.pid, idle_rate(server.pid)
        asked: dict[str, Callable[[int, np.ndarray], tuple[float, float]]] = {
            "wire": lambda turn, pool: spent(lambda: over_wire(by_port, 2 * turn, pool), own, idle),
            "unix": lambda turn, pool: spent(
                lambda: over_wire(by_socket, 2 * turn + 1, pool), own, idle
            ),
            "in_process": lambda turn, pool: spent(lambda: in_process(2 * turn, pool), 0, 0.0),
            "grpc_alone": lambda *_: spent(
                lambda: bare.work_of(plain_port, REQUEST_BYTES), plain_pid, 0.0
            ),
            "grpc_alone_unix": lambda *_: spent(
                lambda: bare.work_of(plain_socket, REQUEST_BYTES), plain_pid, 0.0
            ),
        }
        seen: dict[str, list[tuple[float, float]]] = {way: [] for way in asked}
        for turn, pool in enumerate(pools):
            first = turn % len(asked)
            for way in [*asked][first:] + [*asked][:first]:
                seen[way].append(asked[way](turn, pool))
    engine.close()
    both = {way: np.array(seconds[rounds // 10 :]).T for way, seconds in seen.items()}
    warm, processor = ({way: pair[place] for way, pair in both.items()} for place in (0, 1))
    beyond = {way: processor[way] - processor["in_process"] for way in ("wire", "unix")}
    alone = {"wire": processor["grpc_alone"], "unix": processor["grpc_alone_unix"]}
    return {
        **{way: quantiles(list(seconds)) for way, seconds in warm.items()},
        "overhead_p50_ms": 1e3 * np.median(warm["wire"] - warm["in_process"]),
        "unix_overhead_p50_ms": 1e3 * np.median(warm["unix"] - warm["in_process"]),
        "processor": {
            **{way: quartiles(seconds) for way, seconds in processor.items()},
            "overhead": {way: quartiles(seconds) for way, seconds in beyond.items()},
            "beyond_grpc_alone": {way: quartiles(beyond[way] - alone[way]) for way in beyond},
        },
    }


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


def beside_jobs(address: str, seconds: float) -> dict[str, Any]:
    """Turns of :func:`beside_a_job`; latencies are those of the last."""
    turns = [beside_a_job(address, seconds) for _ in range(ROUNDS)]
    return {**turns[-1], "p99_ratio": spread([turn["p99_ratio"] for turn in turns])}


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
    seen = loader().submit(open_loop, *arguments).result()
    time.sleep(1.0)
    after = throughput(server.address, 8, 2.0, draws)["per_second"]
    refused = seen.latencies.get("RESOURCE_EXHAUSTED", [])
    told = len(refused) + len(seen.latencies.get("OK", []))
    return {
        "offered_per_second": 10 * capacity,
        "deadline_ms": deadline * 1e3,
        "answers": seen.summary(),
        "neither_answered_nor_rejected": sum(map(len, seen.latencies.values())) - told,
        "refused": quantiles(refused) if refused else None,
        "peak_resident_bytes": before,
        "peak_growth_bytes": memory(server.pid, "VmHWM") - before,
        "answered_in_time_per_second": len(seen.latencies.get("OK", [])) / seconds,
        "capacity_per_second": capacity,
        "capacity_one_second_after_per_second": after,
    }


def overloads(server: ServerProcess, seconds: float, runs: int) -> dict[str, Any]:
    """Several overloads: the first, all, and the worst of them."""
    draws = 48
    capacity = throughput(server.address, 8, seconds, draws)["per_second"]
    found = [overload(server, capacity, seconds, draws) for _ in range(runs)]
    return {
        **found[0],
        "runs": found,
        "worst_refused_p99_ms": max((one["refused"] or {}).get("p99_ms", 0.0) for one in found),
        "runs_refused_within_50_ms": sum(
            one["refused"] is None or one["refused"]["p99_ms"] <= 50 for one in found
        ),
        "neither_in_all_runs": sum(one["neither_answered_nor_rejected"] for one in found),
    }


def compared(servers: dict[str, ServerProcess], parts: set[str], seconds: float) -> dict[str, Any]:
    """Throughput of servers that merge requests and do not, in turns, and what merging gains."""
    found: dict[str, Any] = {}
    loads = [("", views, PAIR) for views in VIEWS if "pairs" in parts]
    loads += [("pools_", 1, POOL)] if "pools" in parts else []
    for server in servers.values():
        throughput(server.address, 4, 2.0, 4)  # warm
    for prefix, views, method in loads:
        seen: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}

        def turn(name: str, views: int = views, method: str = method, seen: Any = seen) -> Spent:  # noqa: ANN401
            seen[name].append(one := shared(servers[name], seconds, views, method))
            cost = one["server_ms_a_call"]
            return Spent(cost["user"] + cost["system"], 1e3 / one["per_second"])

        took = alternated({name: partial(turn, name) for name in servers})
        gained = ratio(took["unbatched"], took["batched"])
        for name, turns in seen.items():
            middle = sorted(turns, key=lambda one: one["per_second"])[len(turns) // 2]
            if prefix:
                found[f"{prefix}{name}"] = middle
            else:
                found.setdefault(name, {})[str(views)] = middle
        if prefix:
            found["pools_throughput_ratio"] = gained
        else:
            found.setdefault("throughput_ratio", {})[str(views)] = gained
    return found


def merged(
    server: ServerProcess, sockets: str, parts: set[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Everything that is asked of a server as it is, the overload last."""
    report: dict[str, Any] = {}
    seconds = options.seconds
    if "overhead" in parts:
        report["pool_64x5"] = pool_overhead(server, sockets, options.rounds)
    if "job" in parts:
        report["beside_a_job"] = beside_jobs(server.address, seconds)
    if "overload" in parts:
        report["overload"] = overloads(server, seconds, options.runs)
    return report


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "interactive")
    arguments.add_argument("--seconds", type=float, default=6.0, help="length of each load")
    arguments.add_argument("--rounds", type=int, default=200, help="pools of the overhead part")
    arguments.add_argument("--runs", type=int, default=10, help="overloads")
    arguments.add_argument("--only", default=",".join(PARTS), help="parts, joined by commas")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    parts = set(options.only.split(","))
    if unknown := parts - set(PARTS):
        arguments.error(f"--only {', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    report: dict[str, Any] = {}
    if parts != set(PARTS) and options.out.is_file():
        report = json.loads(options.out.read_text())
    report |= {"model": MODEL, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data").mkdir()
        write_dataset(root / "data" / "two-room.h5")
        (root / "data" / "two-room.yaml").write_bytes((WORLD / "two-room.yaml").read_bytes())
        roots = (CHECKPOINTS, root / "data")
        if parts & {"pairs", "pools"}:
            alone = {"ACPC_MERGE_REQUESTS": "false"}
            with (
                ServerProcess(*roots, root / "alone", environment=alone) as other,
                ServerProcess(*roots, root / "together") as server,
            ):
                servers = {"batched": server, "unbatched": other}
                report |= compared(servers, parts, options.seconds)
        # A small cache of latents, full before the overload, whose memory is to stay flat.
        small_cache = {"ACPC_LATENT_CACHE_MIB": "4"}
        sockets = f"unix:{root / 'acpc.sock'}"
        flags = {"environment": small_cache, "listen": sockets}
        with ServerProcess(*roots, root / "state", **flags) as server:
            report |= merged(server, sockets, parts, options)
    publish(report, options.out)


if __name__ == "__main__":
    main()
