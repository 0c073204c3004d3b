"""Intervals hold the truth about as often as they say, on synthetic scores of known truth."""

from dataclasses import replace

import numpy as np
import pytest
from acpc.contract import EvidenceOptions, Outcome, ScoreProtocol, Thresholds
from acpc_server.evidence import judge
from synthetic_scores import Population, experiment, truth, with_sr


@pytest.mark.parametrize("experiments", [25, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("population", "sr"),
    [
        (Population(), 0.95),
        (Population(per_trajectory=5, within=0.5), 0.8),
        (Population(tails=3, spread=0.6), 0.9),
        (Population(distance=20.0), None),
    ],
    ids=["plain", "clustered", "heavy tails", "all agree"],
)
def test_intervals_hold_the_truth(
    population: Population, sr: float | None, experiments: int
) -> None:
    """As often as they say, less four standard errors of so many experiments."""
    population = population if sr is None else with_sr(population, sr, sets=150)
    true = truth(population, sets=250)
    generator, options = np.random.default_rng(5), EvidenceOptions(resamples=200)
    at_the_truth = Thresholds(true.ir_relative, true.sr)
    missed = dict.fromkeys(("ir_raw", "reference_ir_raw", "ir_relative", "sr"), 0)
    decided = dict.fromkeys((Outcome.PASSED, Outcome.FAILED, Outcome.UNDECIDED), 0)
    for _ in range(experiments):
        own, reference = experiment(population, generator)
        found = judge(own, reference, ScoreProtocol(), at_the_truth, options)
        decided[found.confident_outcome] += 1
        for name in missed:
            interval = getattr(found, name)
            missed[name] += not interval.lower <= getattr(true, name) <= interval.upper
    for name, times in missed.items():
        assert times <= 0.05 * experiments + 4 * (0.05 * 0.95 * experiments) ** 0.5, name
    assert decided[Outcome.PASSED] <= 0.1 * experiments
    assert decided[Outcome.FAILED] <= 0.1 * experiments


def test_a_bootstrap_of_anchors_on_their_own_would_not() -> None:
    """The same experiments, their trajectories not told: intervals that are too narrow."""
    population = with_sr(Population(per_trajectory=10, within=0.9), 0.8, sets=150)
    true = truth(population, sets=250)
    generator, options = np.random.default_rng(6), EvidenceOptions(resamples=200)
    missed = 0
    for _ in range(100):
        own, _ = experiment(population, generator)
        own = replace(own, trajectory=np.arange(population.anchors))
        sr = judge(own, None, ScoreProtocol(), Thresholds(), options).sr
        missed += not sr.lower <= true.sr <= sr.upper
    assert missed > 20
