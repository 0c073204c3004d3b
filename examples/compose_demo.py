"""The load of the compose file's demo: gives a new installation something to look at.

    python examples/compose_demo.py --target localhost:50051 --out build/demo --rounds 20

Writes the two-room dataset to <out>/datasets, the dataset root of the server. Then, a
round a minute, it scores the three checkpoints, compares views and certifies pools. It leaves at
once when the server has other checkpoints.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise
from server_process import WORLD, dataset_folder

sys.path.insert(0, str(WORLD))

from world import FRAMESKIP, render, simulate

CHECKPOINTS = ("two-room-base", "two-room-augmented", "two-room-collapsed")
PAUSE_SECONDS = 60.0
SEED, HORIZON, CANDIDATES, ELITES = 9101, 3, 48, 8


def ask(client: AcpcClient, checkpoint: str, seed: int) -> None:
    """One job, and a moment of a planner: a pair of views and a pool of candidates."""
    anchors, noise = DatasetAnchors("two-room.h5", "two-room.yaml"), GaussianNoise(0.08)
    score = client.score_checkpoint(checkpoint, anchors, noise, reference=CHECKPOINTS[0]).result()
    print(f"{checkpoint}: {score.verdict.summary}", flush=True)
    frames = render(simulate(1, 4, seed).positions[0][::FRAMESKIP])
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal((CANDIDATES, HORIZON, 2 * FRAMESKIP)).astype(np.float32)
    client.compare_pair(checkpoint, frames[:3], pool[0], perturbations=noise, draws=4)
    client.certify_pool(
        checkpoint, frames[:3], pool, frames[3],
        past_blocks=pool[0, :2], perturbations=GaussianNoise(0.02), draws=4, elite_count=ELITES,
    )  # fmt: skip


def main() -> None:
    """Ask again and again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="localhost:50051", help="default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="folder of the datasets folder")
    parser.add_argument("--rounds", type=int, default=20, help="default: %(default)s")
    given = parser.parse_args()
    with AcpcClient(given.target) as client:
        if not {*CHECKPOINTS} <= {found.name for found in client.checkpoints.list()}:
            print("the server has checkpoints of its own: nothing to demonstrate")
            return
        dataset_folder(given.out)
        for number in range(given.rounds):
            for checkpoint in CHECKPOINTS:
                ask(client, checkpoint, SEED + number)
            if number + 1 < given.rounds:
                time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
