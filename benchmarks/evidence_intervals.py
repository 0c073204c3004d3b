"""Intervals on synthetic scores of known truth: how often they hold it, what a verdict gets wrong.

Every population is drawn again and again (tests/harness/synthetic_scores.py); a threshold is its
own true number, and the other is as well, or is cleared: no experiment should be decided.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

import common  # noqa: F401 - the harness is beside the tests
import numpy as np
from acpc.contract import EvidenceOptions, ScoreProtocol, Thresholds
from acpc.evidence import interval
from acpc_server.evidence.confident import ConfidentVerdict
from acpc_server.evidence.numbers import Numbers
from acpc_server.numerics.verdict import screen_score
from synthetic_scores import Population, Truth, experiment, truth, with_sr

NUMBERS = ("ir_raw", "reference_ir_raw", "ir_relative", "sr")
# What is at its threshold: factors of the thresholds, beside the true numbers.
AT = {"both": (1.0, 1.0), "IR alone": (1.0, 0.5), "SR alone": (3.0, 1.0)}
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
    "8 trajectories of 12": lambda: with_sr(Population(96, per_trajectory=12, within=0.6), 0.8),
    "300 anchors of 75": lambda: with_sr(Population(300, per_trajectory=4, within=0.5), 0.95),
}
SURER = "clustered, 20 of 5, 99 %"


def report(
    experiments: int = 2000,
    resamples: int = 1000,
    seed: int = 1,
    confidence: float = 0.95,
    only: str = "",
) -> dict[str, Any]:
    """A row per population, and one at 99 %; of ``only`` one of them."""
    levels = dict.fromkeys(POPULATIONS, confidence) | {SURER: 0.99}
    rows = {}
    for name, level in levels.items():
        if only not in ("", name):
            continue
        population = POPULATIONS[name.removesuffix(", 99 %")]()
        options = EvidenceOptions(level, resamples)
        rows[name] = measured(population, truth(population), experiments, options, seed)
        print(name, rows[name], file=sys.stderr, flush=True)
    worst = max(
        row["verdicts"][f"{said} at both"] for row in rows.values() for said in ("passed", "failed")
    )
    asked = {"experiments": experiments, "resamples": resamples, "seed": seed}
    return {**asked, "populations": rows, "most_often_wrong": worst}


def measured(
    population: Population, true: Truth, experiments: int, options: EvidenceOptions, seed: int
) -> dict[str, Any]:
    """How often each interval misses the truth, on which side, and how often verdicts are wrong."""
    generator, protocol = np.random.default_rng(seed), ScoreProtocol()
    thresholds = {
        name: Thresholds(ir * true.ir_relative, min(1.0, sr * true.sr))
        for name, (ir, sr) in AT.items()
    }
    ends: dict[str, list[tuple[float, float]]] = {}
    wrong = Counter({f"{said} at {at}": 0 for said in ("passed", "failed") for at in AT})
    seconds = 0.0
    for _ in range(experiments):
        own, reference = experiment(population, generator)
        start = time.thread_time()
        numbers = Numbers.of(own, reference, protocol, options)
        seconds += time.thread_time() - start
        for name in NUMBERS:
            found = interval(getattr(numbers, name), options.confidence)
            ends.setdefault(name, []).append((found.lower, found.upper))
        for at, limits in thresholds.items():
            verdict = ConfidentVerdict(numbers, limits, 1 - options.confidence)
            wrong[f"{verdict.outcome()[0]} at {at}"] += 1
            for name, both in (("S", verdict.score()), ("delta S", verdict.delta_score())):
                assert both is not None  # noqa: S101 - there is a reference
                ends.setdefault(f"{name} at {at}", []).append((both.lower, both.upper))
    truths = {name: getattr(true, name) for name in NUMBERS}
    for at, limits in thresholds.items():
        own_s, reference_s = (
            screen_score(*of, limits.ir, limits.sr)
            for of in ((true.ir_relative, true.sr), (1.0, true.reference_sr))
        )
        truths |= {f"S at {at}": own_s, f"delta S at {at}": own_s - reference_s}
    return {
        "truth": truths,
        **{name: _coverage(ends[name], truths[name]) for name in ends},
        "verdicts": {name: times / experiments for name, times in sorted(wrong.items())},
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
