"""Closed loops in the two-room world: what a planner gains by acting on certificates, and pays.

    python benchmarks/planner_policy.py [--episodes 12] [--out build/benchmarks/planner_policy.json]

A CEM planner looks through a shifted camera, plans three blocks from that frame, acts on the first
and looks again, ten times an episode. Each episode is repeated under every policy with the same
start, goal and random numbers, so that differences are paired. A certificate's perturbation is the
camera's own shift, but for the hidden one, where it is sensor noise. A planner that brakes goes on
with the rest of its previous plan, and stands still where there is none.

Cells that this commit has run are kept, and not run again after an interruption.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from acpc.arrays import NDArray
from acpc.contract import GaussianBlur, GaussianNoise, Occlusion, Perturbation
from acpc_client import (
    AcpcClient,
    CertifyOptions,
    ControlStep,
    CoverageGoal,
    Decision,
    PlanSession,
    Policy,
)
from acpc_server.numerics import to_model_input, to_pixels
from acpc_server.perturb import perturb_frames
from common import ROOT, WORLD, commit, run
from held_actions import HeldActions
from scipy.stats import binomtest
from server_process import ServerProcess
from world import ARRIVED, FRAMESKIP, IMAGE_SIZE, Floats, render, simulate, step

Frames = NDArray[np.uint8]

CANDIDATES, ELITES, DRAWS = 32, 6, 3
LOOKS, GOAL_STEPS = 10, 25
SEEDS, WORLD_SEED = (42, 43, 44), 9101
SAME_ACTION = 0.2  # of the agent's full speed
NOISE, BLUR, HIDDEN = GaussianNoise(0.02), GaussianBlur(5), Occlusion(0.3)
# What the camera does, and what is certified.
CAMERAS: dict[str, tuple[Perturbation, Perturbation]] = {
    "noise": (NOISE, NOISE),
    "blur": (BLUR, BLUR),
    "hidden": (HIDDEN, NOISE),
}
ROBUST, FRAGILE = "noise-0.16-run-0", "noise-0.00-run-0"
HELD = HeldActions()
# Time is measured and not limited, so that no decision depends on the machine.
ALWAYS: dict[str, Any] = {
    "budget_ms": 60_000.0,
    "acted": lambda pool: HELD.of(pool[:, 0]),
    "same_action": SAME_ACTION,
}
CLOSER: CertifyOptions = {"coverage_goal": CoverageGoal(0.95, 0.9, max_draws=100)}
POLICIES: dict[str, Policy | None] = {
    "none": None,
    "brake": Policy(**ALWAYS),
    "shrink": Policy((Decision.SHRINK,), **ALWAYS),
    "earlier": Policy((Decision.EARLIER,), **ALWAYS),
    "refine": Policy((Decision.REFINE,), closer=CLOSER, **ALWAYS),
    "replan": Policy((Decision.REPLAN,), **ALWAYS),
    "all": Policy((Decision.SHRINK, Decision.EARLIER, Decision.REPLAN), **ALWAYS),
}
FOR_THE_FRAGILE = ("none", "brake", "all")
CELLS = [
    f"{checkpoint} {camera} {policy}"
    for checkpoint in (ROBUST, FRAGILE)
    for camera in CAMERAS
    for policy in (POLICIES if checkpoint == ROBUST else FOR_THE_FRAGILE)
]


@dataclass
class Tally:
    """What happened in the episodes of one policy.

    Attributes:
        reached: Whether each episode reached its goal.
        decided: Control steps by decision.
        certified: Whether the choice of each control step was certified, remedies included.
        pools: Pools asked about.
        milliseconds: Of each control step.
        unchanged: Fraction of the drawn views that chose the same winner, of each control step.
    """

    reached: list[bool] = field(default_factory=list)
    decided: Counter[str] = field(default_factory=Counter)
    certified: list[bool] = field(default_factory=list)
    pools: int = 0
    milliseconds: list[float] = field(default_factory=list)
    unchanged: list[float] = field(default_factory=list)

    def add(self, decided: ControlStep) -> None:
        """One control step."""
        self.decided[str(decided.decision)] += 1
        self.certified.append(decided.plan is not None)
        self.pools += decided.pools
        self.milliseconds.append(round(1000 * decided.seconds, 1))
        self.unchanged.append(decided.attempts[0].unchanged)


@dataclass(frozen=True)
class Loop:
    """One camera in front of one checkpoint."""

    client: AcpcClient
    checkpoint: str
    camera: Perturbation
    certified: Perturbation

    def run(self, policy: Policy | None, episodes: int) -> Tally:
        """Every episode; without a policy every winner is acted on, certified or not."""
        tally = Tally()
        for seed in SEEDS:
            log = simulate(episodes, GOAL_STEPS // FRAMESKIP + 1, 1000 * WORLD_SEED + seed)
            for episode in range(episodes):
                start, goal = log.positions[episode, [0, GOAL_STEPS]]
                tally.reached.append(self._episode(policy, (start, goal), (seed, episode), tally))
        return tally

    def _episode(
        self, policy: Policy | None, ends: tuple[Floats, Floats], key: tuple[int, int], tally: Tally
    ) -> bool:
        position, goal = ends
        rest: Floats = np.empty((0, 2))
        for number in range(LOOKS):
            decided = self._step(policy, position, goal, (*key, number))
            tally.add(decided)
            plan = decided.plan
            if policy is None and decided.pool is not None and decided.certificate is not None:
                plan = decided.pool[decided.certificate.clean_winner]
            if plan is not None:
                rest = HELD.of(plan)
            action, rest = (rest[:1], rest[1:]) if len(rest) else (np.zeros((1, 2)), rest)
            for _ in range(FRAMESKIP):
                position = step(position[None], action)[0]
                if np.linalg.norm(position - goal) < ARRIVED:
                    return True
        return False

    def _step(
        self, policy: Policy | None, position: Floats, goal: Floats, key: tuple[int, int, int]
    ) -> ControlStep:
        seed, episode, number = key
        moment = 1000 * episode + number
        observed, planned = count(), count()

        def observe() -> Frames:
            return seen(position, self.camera, seed, moment, next(observed))

        def look(frame: Frames, **options: Any) -> PlanSession:  # noqa: ANN401
            return self.client.plan(
                self.checkpoint, frame, render(goal[None])[0], perturbations=self.certified,
                seed=10**6 + seed, anchor=moment, **{"draws": DRAWS, **options},
            )  # fmt: skip

        return (policy or Policy(**ALWAYS)).step(
            observe,
            look,
            lambda: HELD.pools(np.random.default_rng([*key, next(planned)]), CANDIDATES, ELITES),
        )


def seen(position: Floats, shift: Perturbation, seed: int, moment: int, draw: int) -> Frames:
    """The frame (1, 32, 32, 3) of a position through a camera."""
    clean = to_model_input(torch.from_numpy(render(position[None])), IMAGE_SIZE)
    view = perturb_frames(clean, shift, seed=seed, anchor=moment, draw=draw)
    frames: Frames = to_pixels(view).numpy()
    return frames


def rate(successes: int, trials: int) -> str:
    """A percentage with its exact (Clopper-Pearson) 95 % interval."""
    found = binomtest(successes, trials).proportion_ci(method="exact")
    return f"{100 * successes / trials:.0f} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def gain(ours: list[bool], others: list[bool]) -> str:
    """Paired difference of two success rates in points, with a 95 % interval.

    The fractions of episodes that only one of the two wins have exact intervals of 97.5 % each;
    their difference therefore has one of at least 95 %, whatever the pairs share.
    """
    pairs = list(zip(ours, others, strict=True))
    counts = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    won, lost = (binomtest(n, len(pairs)).proportion_ci(0.975, method="exact") for n in counts)
    low, high = 100 * (won.low - lost.high), 100 * (won.high - lost.low)
    mean = 100 * (counts[0] - counts[1]) / len(pairs)
    return f"{mean:+.0f} [{low:+.0f}, {high:+.0f}] (+{counts[0]} -{counts[1]})"


def summary(cell: dict[str, Any], none: dict[str, Any]) -> dict[str, Any]:
    """One row of the table in docs/certificates.md."""
    reached, certified = cell["reached"], cell["certified"]
    return {
        "success": rate(sum(reached), len(reached)),
        "against_none": gain(reached, none["reached"]),
        "certified": float(np.mean(certified)),
        "pools_a_step": cell["pools"] / len(certified),
        "ms_a_step": float(np.median(cell["milliseconds"])),
        "won": sum(a and not b for a, b in zip(reached, none["reached"], strict=True)),
        "lost": sum(b and not a for a, b in zip(reached, none["reached"], strict=True)),
    }


def summarised(cells: dict[str, dict[str, Any]], episodes: int) -> dict[str, Any]:
    """Every cell, and over the robust model's cameras the episodes that a policy wins and loses."""
    rows = {
        name: summary(cell, cells[f"{' '.join(name.split()[:2])} none"])
        for name, cell in cells.items()
    }
    pooled = {
        policy: {
            key: sum(rows[f"{ROBUST} {camera} {policy}"][key] for camera in CAMERAS)
            for key in ("won", "lost")
        }
        for policy in POLICIES
    }
    return {"episodes": episodes * len(SEEDS), "cells": rows, "over_the_cameras": pooled}


def report(episodes: int = 12) -> dict[str, Any]:
    """Every cell, with so many episodes of each of three seeds."""
    kept = ROOT / f"build/planner_policy-{commit()}-{episodes}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    cells = json.loads(kept.read_text()) if kept.exists() else {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "datasets").mkdir()
        with (
            ServerProcess(WORLD / "sweep", folder / "datasets", folder / "state") as server,
            AcpcClient(server.address) as client,
        ):
            for key in CELLS:
                if key not in cells:
                    checkpoint, camera, policy = key.split()
                    loop = Loop(client, checkpoint, *CAMERAS[camera])
                    cells[key] = vars(loop.run(POLICIES[policy], episodes))
                    kept.write_text(json.dumps(cells))
                    print(key, rate(sum(cells[key]["reached"]), len(cells[key]["reached"])))
    return summarised(cells, episodes)


if __name__ == "__main__":
    run(report)
