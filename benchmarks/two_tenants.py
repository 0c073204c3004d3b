"""Two tenants on one server, one of them adversarial: what the other one notices.

    python benchmarks/two_tenants.py [--seconds 20] [--connections 200] [--jobs 2000] [--out FILE]

The adversary holds 200 connections with half-open calls, 100 waits, 50 streams that send pair after
pair, and 2,000 jobs, or as much of it as the server lets it have. Ends with 1 when the other's
ComparePair p99 is over twice its idle value, or its job does not start within ten seconds.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import HOSTILE, ROUNDS, parser, publish, spread

# isort: split
import grpc
from acpc.v1 import diagnostic_service_pb2_grpc
from google.longrunning import operations_pb2
from job_world import JobCaller, metadata
from load import fresh_seed, quantiles
from processes import running
from served_world import write_world
from server_process import ServerProcess
from tenants import Tenants, make_tenants
from wire import pair as pair_message
from wire import score as score_message
from wire import several

HELD = ("connections", "waits", "streams", "jobs")
MAX_RATIO, MAX_START_SECONDS = 2.0, 10.0


class Victim:
    """The other tenant."""

    def __init__(self, channel: grpc.Channel, key: tuple[tuple[str, str], ...]) -> None:
        self._pairs = diagnostic_service_pb2_grpc.DiagnosticServiceStub(channel)
        self._jobs = JobCaller(channel)
        self._given: dict[str, Any] = {"timeout": 60, "metadata": key}

    def pairs(self, seconds: float) -> dict[str, Any]:
        """ComparePair, one after another: latencies, and the codes of those that failed."""
        found, codes = [], Counter[str]()
        end, seeds = time.perf_counter() + seconds, itertools.count(fresh_seed())
        while time.perf_counter() < end:
            request = pair_message(perturbations=several(seed=next(seeds), draws=4))
            started = time.perf_counter()
            try:
                self._pairs.ComparePair(request, **self._given)
                found.append(time.perf_counter() - started)
            except grpc.RpcError as error:
                codes[error.code().name] += 1
        return {**(quantiles(found) if found else {}), "failed": dict(codes)}

    def job(self) -> dict[str, float]:
        """Seconds until a job of its own has started, and until it has ended."""
        started, begun = time.perf_counter(), None
        name = self._jobs.scoring.ScoreCheckpoint(score_message(), **self._given).name
        wanted = operations_pb2.GetOperationRequest(name=name)
        while True:
            operation = self._jobs.operations.GetOperation(wanted, **self._given)
            if begun is None and metadata(operation).HasField("start_time"):
                begun = time.perf_counter() - started
            if operation.done:
                ended = time.perf_counter() - started
                return {"started_seconds": begun or ended, "ended_seconds": ended}
            time.sleep(0.05)


def beside(server: ServerProcess, tenants: Tenants, given: Any) -> dict[str, Any]:  # noqa: ANN401
    """The victim alone, then beside the adversary, then alone again."""
    command = [sys.executable, HOSTILE / "adversary.py", server.address]
    command += ["--key", tenants.keys["adversary"]]
    for name in HELD:
        command += [f"--{name}", str(getattr(given, name))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with grpc.insecure_channel(server.address) as channel:
        victim = Victim(channel, tenants.metadata("victim"))
        victim.pairs(2)  # warm
        idle, idle_job = victim.pairs(given.seconds), victim.job()
        with running(command, **pipes) as adversary:
            held = json.loads(adversary.stdout.readline())
            under, under_job = victim.pairs(given.seconds), victim.job()
            adversary.stdin.close()
            took = json.loads(adversary.stdout.readline())
        after = victim.pairs(given.seconds)
    ratio = float(under["p99_ms"] / idle["p99_ms"]) if "p99_ms" in under else None
    return {
        "adversary_at_first": held,
        "adversary_in_the_end": took,
        "idle": {**idle, **idle_job},
        "under": {**under, **under_job},
        "after": after,
        "p99_ratio": ratio,
        "kept": ratio is not None
        and ratio <= MAX_RATIO
        and not under["failed"]
        and under_job["started_seconds"] <= MAX_START_SECONDS,
    }


def main() -> None:
    command = parser(__doc__, "two_tenants")
    command.add_argument("--seconds", type=float, default=20.0)
    for name, count in zip(HELD, (200, 100, 50, 2000), strict=True):
        command.add_argument(f"--{name}", type=int, default=count)
    given = command.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world, tenants = write_world(Path(folder)), make_tenants(Path(folder))
        turns, bugs = list[dict[str, Any]](), list[str]()
        for turn in range(ROUNDS):
            with ServerProcess(
                world.checkpoint_root,
                world.dataset_root,
                world.state_dir / str(turn),
                keys_file=tenants.keys_file,
            ) as server:
                turns.append(beside(server, tenants, given))
                bugs += server.bugs()
    report = {**turns[-1], "kept": all(turn["kept"] for turn in turns), "bugs": bugs}
    if all(turn["p99_ratio"] for turn in turns):
        report["p99_ratio"] = spread([turn["p99_ratio"] for turn in turns])
    publish(report, given.out)
    sys.exit(not report["kept"] or bool(report["bugs"]))


if __name__ == "__main__":
    main()
