"""Intervals on synthetic scores of known truth: how often they hold it, what a verdict gets wrong.

Every population is drawn again and again (tests/harness/synthetic_scores.py); thresholds are its
own true numbers, so that every decided verdict is wrong.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import common  # noqa: F401 - the harness is beside the tests
import numpy as np
from acpc.contract import EvidenceOptions, Outcome, ScoreProtocol, Thresholds
from acpc_server.evidence import judge
from synthetic_scores import Population, Truth, experiment, truth, with_sr

NUMBERS = ("ir_raw", "reference_ir_raw", "ir_relative", "sr")
CLUSTERED = Population(per_trajectory=5, within=0.5)
POPULATIONS: dict[str, Callable[[], Population]] = {
    "plain": lambda: with_sr(Population(), 0.95),
    "clustered, 20 of 5": lambda: with_sr(CLUSTERED, 0.95),
    "clustered, SR 0.8": lambda: with_sr(CLUSTERED, 0.8),
    "clustered, 10 of 10": lambda: with_sr(Population(per_trajectory=10, within=0.3), 0.9),
    "heavy tails": lambda: with_sr(Population(tails=3, spread=0.6), 0.9),
    "near collapse": lambda: with_sr(Population(radius=0.001, distance_spread=0.3), 0.5),
    "almost all agree": lambda: with_sr(Population(distance_spread=0.3), 0.99),
    "all agree": lambda: Population(distance=20.0),
    "25 anchors": lambda: with_sr(Population(anchors=25), 0.9),
    "50 anchors of 25": lambda: with_sr(Population(50, per_trajectory=2, within=0.3), 0.95),
    "300 anchors of 75": lambda: with_sr(Population(300, per_trajectory=4, within=0.5), 0.95),
}


def report(experiments: int = 2000, resamples: int = 1000, seed: int = 1) -> dict[str, Any]:
    """A row per population."""
    options = EvidenceOptions(resamples=resamples)
    rows = {}
    for name, make in POPULATIONS.items():
        population = make()
        rows[name] = measured(population, truth(population), experiments, options, seed)
        print(name, rows[name], file=sys.stderr, flush=True)
    return {"experiments": experiments, "resamples": resamples, "seed": seed, "populations": rows}


def measured(
    population: Population, true: Truth, experiments: int, options: EvidenceOptions, seed: int
) -> dict[str, Any]:
    """How often each interval misses the truth, on which side, and how often verdicts are wrong."""
    generator, protocol = np.random.default_rng(seed), ScoreProtocol()
    thresholds = Thresholds(true.ir_relative, min(1.0, true.sr))
    ends: dict[str, list[tuple[float, float]]] = {name: [] for name in NUMBERS}
    wrong = dict.fromkeys((Outcome.PASSED, Outcome.FAILED, Outcome.UNDECIDED), 0)
    seconds = 0.0
    for _ in range(experiments):
        own, reference = experiment(population, generator)
        start = time.thread_time()
        evidence = judge(own, reference, protocol, thresholds, options)
        seconds += time.thread_time() - start
        wrong[evidence.confident_outcome] += 1
        for name in NUMBERS:
            found = getattr(evidence, name)
            ends[name].append((found.lower, found.upper))
    return {
        "truth": {name: getattr(true, name) for name in NUMBERS},
        **{name: _coverage(ends[name], getattr(true, name)) for name in NUMBERS},
        "passed": wrong[Outcome.PASSED] / experiments,
        "failed": wrong[Outcome.FAILED] / experiments,
        "cpu_ms": 1000 * seconds / experiments,
    }


def _coverage(ends: list[tuple[float, float]], true: float) -> dict[str, float]:
    above = sum(lower > true for lower, _ in ends) / len(ends)
    below = sum(upper < true for _, upper in ends) / len(ends)
    return {
        "covers": 1 - above - below,
        "lies_above": above,
        "lies_below": below,
        "median_width": median(upper - lower for lower, upper in ends),
    }
