"""Both populations on odd trajectories and whole datasets: how often intervals hold, and power.

`benchmarks/evidence_populations.py` runs it, on those of tests/harness/hard_scores.py.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from acpc.contract import (
    Evidence,
    EvidenceOptions,
    Outcome,
    Population,
    ScoreProtocol,
    Thresholds,
)
from acpc_server.evidence import judge
from common import run
from hard_scores import HARD, HARD_PAIRS, WORLDS, World, hard_truth, of_dataset
from synthetic_scores import covered, paired_covered

CHECKPOINTS = {
    "perfect": (0.1, None),
    "good": (0.15, 0.99),
    "fair": (0.2, 0.98),
    "poor": (0.4, 0.9),
}
SIZES = (100, 200, 400)
# Anchors of the jobs whose promises are kept or not; what promises more than MOST is left out.
PROMISED = (
    (Population.DATASET, 100),
    (Population.TRAJECTORIES, 200),
    (Population.TRAJECTORIES, 400),
)
MOST = 40_000


def report(
    experiments: int = 1000, resamples: int = 1000, decided: int = 100, only: str = ""
) -> dict[str, Any]:
    """A row per population, the power of both, and whether what is promised decides.

    Of ``only`` one of the parts: trajectories, differences, datasets, power, promised.
    """
    options = EvidenceOptions(resamples=resamples)
    parts = {
        "trajectories": lambda: {
            name: covered(_pair(make), hard_truth(make)[0], experiments, options)
            for name, make in HARD.items()
        },
        "differences": lambda: {
            name: paired_covered(make, hard_truth(make)[1], experiments, options)
            for name, make in HARD_PAIRS.items()
        },
        "datasets": lambda: {
            name: _drawn(make(), count, experiments, resamples)
            for name, (make, count) in WORLDS.items()
        },
        "power": lambda: power(decided),
        "promised": lambda: promised(decided),
    }
    rows = {}
    for name, part in parts.items():
        if only in ("", name):
            rows[name] = part()
            print(name, rows[name], file=sys.stderr, flush=True)
    return {"experiments": experiments, "resamples": resamples, "decided": decided, **rows}


def _pair(make: Any) -> Any:  # noqa: ANN401 - a function
    return lambda generator: make(generator)[:2]


def _drawn(world: World, count: int, experiments: int, resamples: int) -> dict[str, float]:
    true, options = world.truth(count, 0.95), of_dataset(resamples=resamples)
    return covered(lambda generator: world.draw(count, generator), true, experiments, options)


def _world(relative: float, sr: float | None, count: int, episodes: int = 120) -> World:
    world = World(episodes=episodes, per_episode=66, relative=relative, apart=50.0)
    if sr is not None:
        world.apart = 1.0
        world.truth(count, sr, 200)
    return world


def power(experiments: int) -> dict[str, dict[str, float]]:
    """How often anchors of 120 episodes decide each checkpoint, of both populations."""
    rows: dict[str, dict[str, float]] = {}
    for name, (relative, sr) in CHECKPOINTS.items():
        row = rows.setdefault(name, {"relative_ir": relative, "sr": sr or 1.0})
        for count in SIZES:
            world, generator = _world(relative, sr, count), np.random.default_rng(1)
            pairs = [world.draw(count, generator) for _ in range(experiments)]
            for of in (Population.DATASET, Population.TRAJECTORIES):
                options = replace(EvidenceOptions(), population=of)
                sure = [
                    judge(*pair, ScoreProtocol(), Thresholds(), options).confident_outcome
                    in (Outcome.PASSED, Outcome.FAILED)
                    for pair in pairs
                ]
                row[f"{of} {count}"] = float(np.mean(sure))
    return rows


def promised(experiments: int) -> dict[str, dict[str, float]]:
    """Of jobs on a good checkpoint that are undecided, how many are decided at what they promised.

    Each on a dataset of 120 episodes; of trajectories then on another, of as many more.
    """
    rows = {}
    large = World(episodes=4000, per_episode=66, relative=0.15)
    large.truth(2000, 0.99, 50)
    for of, count in PROMISED:
        options, generator = replace(EvidenceOptions(), population=of), np.random.default_rng(2)
        decided, growths, beyond = 0, [], 0
        for seed in range(experiments):
            world = replace(large, episodes=120, seed=seed)
            found = _judged(world, count, generator, options)
            need = found.anchors_to_decide or found.trajectories_to_decide
            if found.confident_outcome is not Outcome.UNDECIDED or not need:
                continue
            growth = need / (found.trajectories if of is Population.TRAJECTORIES else count)
            if growth * count > MOST:
                beyond += 1
                continue
            growths.append(growth)
            if of is Population.TRAJECTORIES:
                world = replace(world, episodes=round(120 * growth), seed=experiments + seed)
            again = _judged(world, min(world.windows, round(count * growth)), generator, options)
            decided += again.confident_outcome is not Outcome.UNDECIDED
        rows[f"{of} {count}"] = {
            "undecided": len(growths),
            "decided_at_what_was_promised": decided / max(1, len(growths)),
            "median_growth": float(np.median(growths)) if growths else 0.0,
            "beyond": beyond,
        }
    return rows


def _judged(
    world: World, count: int, generator: np.random.Generator, options: EvidenceOptions
) -> Evidence:
    return judge(*world.draw(count, generator), ScoreProtocol(), Thresholds(), options)


if __name__ == "__main__":
    run(report)
