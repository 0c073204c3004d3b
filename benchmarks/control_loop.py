"""A control loop of 50 steps, with a Plan stream a step: what a step takes.

    python benchmarks/control_loop.py [--rounds 5] [--out FILE]

By perturbation, milliseconds of a step by the clock and of processor time, client and server
together, with a cache of latents and without.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import Brightness, GaussianBlur, GaussianNoise
from acpc_client import AcpcClient
from common import CHECKPOINTS, ROUNDS, run, spent
from load import HISTORY, SIDE, WIDTH
from server_process import ServerProcess

MODEL, STEPS = "two-room-base", 50
POOLS = (STEPS, 64, 5, WIDTH)
CHANGES = {
    "noise": GaussianNoise(0.08),
    "blur": GaussianBlur(5),
    "brightness": Brightness(0.2),
}


def episode(server: ServerProcess, change: Any, seed: int) -> tuple[float, float]:  # noqa: ANN401
    """Medians of steps that nobody asked before, in milliseconds: the clock, the processors."""
    rng, took = np.random.default_rng(seed), []
    frames = rng.integers(0, 256, (HISTORY + STEPS, SIDE, SIDE, 3), dtype=np.uint8)
    goal = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    blocks = rng.standard_normal((HISTORY + STEPS, WIDTH), np.float32)
    pools = rng.standard_normal(POOLS, np.float32)

    def step(client: AcpcClient, at: int) -> None:
        window, past = frames[at : at + HISTORY], blocks[at : at + HISTORY - 1]
        options = {"past_blocks": past, "perturbations": change, "seed": seed, "elite_count": 8}
        with client.plan(MODEL, window, goal, **options) as session:
            session.certify(pools[at])

    with AcpcClient(server.address) as client:
        for at in range(STEPS):
            one = spent(partial(step, client, at), server.pid)
            took.append((1e3 * one.wall, 1e3 * one.processor))
    wall, processor = np.median(took, axis=0).tolist()
    return wall, processor


def report(rounds: int = ROUNDS) -> dict[str, Any]:
    """So many episodes of each kind, after one that warms."""
    found: dict[str, Any] = {"model": MODEL, "steps": STEPS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        for kind, options in (("cached", {}), ("uncached", {"latent_cache_mib": 0})):
            with ServerProcess(CHECKPOINTS, folder / "data", folder / kind, **options) as server:
                for change, spec in CHANGES.items():
                    seed = time.time_ns() % 2**40
                    turns = [episode(server, spec, seed + n) for n in range(rounds + 1)][1:]
                    wall, processor = np.median(turns, axis=0).tolist()
                    took = {"step_ms": wall, "processor_ms": processor}
                    found.setdefault(change, {})[kind] = took
    return found


if __name__ == "__main__":
    run(report)
