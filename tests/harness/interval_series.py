"""Intervals on synthetic scores of known truth: how often they hold it, what a verdict gets wrong.

A threshold is the population's own true number, and the other is as well, or is cleared: no
experiment should be decided.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from acpc.contract import EvidenceOptions, ScoreProtocol, Thresholds, screen_score
from acpc_server.evidence.confident import ConfidentVerdict
from acpc_server.evidence.numbers import Numbers
from synthetic_scores import Population, Truth, experiment, with_sr

NUMBERS = ("ir_raw", "reference_ir_raw", "ir_relative", "sr")
# What is at its threshold: factors of the thresholds, beside the true numbers.
AT = {"both": (1.0, 1.0), "IR alone": (1.0, 0.5), "SR alone": (3.0, 1.0)}
CLUSTERED = Population(per_trajectory=5, within=0.5)
IR_ALONE, SR_ALONE = {"bad_distance": 1.0}, {"bad_radius": 1.0}
# Share of fragile trajectories, trajectories of 100 anchors, SR, in what they are fragile.
BAD: list[tuple[float, int, float, str, dict[str, float]]] = [
    (0.1, 25, 0.9, "", {}),
    (0.1, 25, 0.95, "", {}),
    (0.1, 50, 0.9, "", {}),
    (0.2, 25, 0.8, "", {}),
    (0.1, 100, 0.9, "", {}),
    (0.02, 100, 0.98, "", {}),
    (0.05, 50, 0.95, "", {}),
    (0.3, 10, 0.7, "", {}),
    (0.1, 50, 0.9, " in IR alone", IR_ALONE),
    (0.1, 50, 0.9, " in SR alone", SR_ALONE),
]


def _with_bad(share: float, count: int, sr: float, other: dict[str, float]) -> Population:
    population = Population(per_trajectory=100 // count, within=0.3 * (count < 100), bad=share)
    return with_sr(replace(population, **other), sr)


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
    **{
        f"{100 * share:g} % bad of {count}{where}, SR {sr:g}": partial(
            _with_bad, share, count, sr, other
        )
        for share, count, sr, where, other in BAD
    },
    "6 hub partners, SR 0.5": lambda: with_sr(Population(hubs=6), 0.5),
}


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
            found = getattr(numbers, name).interval(options.confidence)
            ends.setdefault(name, []).append((found.lower, found.upper))
        for at, limits in thresholds.items():
            verdict = ConfidentVerdict(numbers, limits, 1 - options.confidence, protocol.quantile)
            wrong[f"{verdict.outcome()[0]} at {at}"] += 1
            for name, both in (("S", verdict.score()), ("delta S", verdict.delta_score())):
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
