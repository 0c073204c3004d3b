"""Attacks on the door of a server, a fresh one for each: what others see, what the process holds.

    python benchmarks/door.py [--only half_open_unary,waits] [--sources TREE] [--out FILE]

``--sources`` is another checkout, whose server is attacked instead.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from common import ROOT, parser, publish

# isort: split
import grpc
import wire
from acpc.v1.scoring_service_pb2_grpc import ScoringServiceStub
from attacks import ATTACKS, Target
from served_world import ServedWorld, write_world
from server_process import ServerProcess
from watching import Caller, ask, watched

NEED_A_JOB = ("waits", "busy_waits", "watches")
DATASET = {"dataset": "tworoom.h5", "task": "tworoom"}


def long_job(address: str) -> str:
    """Name of a job that goes on for as long as an attack does."""
    request = wire.score(dataset={**DATASET, "count": 30}, protocol={"draws": 1000})
    with grpc.insecure_channel(address) as channel:
        return ScoringServiceStub(channel).ScoreCheckpoint(request, timeout=60).name


def attacked(name: str, world: ServedWorld, environment: dict[str, str]) -> dict[str, Any]:
    """One attack on a server of its own."""
    with (
        tempfile.TemporaryDirectory() as state,
        ServerProcess(
            world.checkpoint_root, world.dataset_root, Path(state), environment=environment
        ) as server,
    ):
        metrics = f"127.0.0.1:{server.metrics_port}"
        caller = Caller(server.address, metrics)
        idle = ask(caller, 3)
        job = long_job(server.address) if name in NEED_A_JOB else ""
        target = Target(server.address, metrics, job)
        report = {"idle": idle, **watched(ATTACKS[name], target, caller, server.pid)}
        return {**report, "bugs": len(server.bugs()), "answered": answered(report["others"])}


def answered(others: dict[str, dict[str, Any]]) -> str:
    """In words, which kinds of call another caller had answered."""
    some = [(kind, seen["answered"]) for kind, seen in others.items()]
    missed = [f"{kind} ({share})" for kind, share in some if len(set(share.split("/"))) > 1]
    return f"all but {', '.join(missed)}" if missed else "all"


def main() -> None:
    command = parser(__doc__, "door")
    command.add_argument("--only", default=",".join(ATTACKS), help="attacks, joined by commas")
    command.add_argument("--sources", type=Path, default=ROOT, help="checkout to attack")
    given = command.parse_args()
    paths = [str(given.sources / part) for part in ("proto", "server", "client")]
    environment = {"PYTHONPATH": os.pathsep.join(paths)}
    reports: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        world = write_world(Path(folder))
        for name in given.only.split(","):
            reports[name] = attacked(name, world, environment)
            publish(reports, given.out)


if __name__ == "__main__":
    main()
