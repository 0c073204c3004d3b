"""Intervals hold the truth as often as they say, for few trajectories and odd samples."""

from dataclasses import replace

import numpy as np
import pytest
from acpc.contract import (
    CheckpointRef,
    EvidenceOptions,
    GaussianNoise,
    Outcome,
    ScoreProtocol,
    ScoreRequest,
    Thresholds,
)
from acpc.contract.errors import ArgumentError
from acpc.evidence import FewGroups, Proportion, Resampled
from acpc_server.errors import Cancelled
from acpc_server.evidence import AnchorSample, judge
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
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


PROTOCOL = ScoreProtocol()
GROUPS, LEVELS = st.floats(1.5, 60), st.floats(0.001, 0.4)
ORDERED = np.sort(np.random.default_rng(2).gamma(4, 0.25, 20_000))


def drawn(trajectories: int, seed: int = 3) -> tuple[AnchorSample, AnchorSample]:
    population = Population(60, per_trajectory=60 // trajectories, within=0.6)
    generator = np.random.default_rng(seed)
    while not (pair := experiment(population, generator))[0].eligible.any():
        pass
    return pair


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99, 0.999])
def test_the_allowance_is_students_t_at_every_level(confidence: float) -> None:
    """Judged at a level, and read off at that level by a judge of another, bounds are alike."""
    few, alpha = FewGroups(8, confidence=confidence), 1 - confidence
    wanted = (stats.t.isf(alpha / 2, 7) / stats.norm.isf(alpha / 2)) ** 2
    assert few.factor == pytest.approx(wanted)
    other = FewGroups(8, confidence=0.95)
    reach = stats.norm.isf(other.level(alpha) / 2) * np.sqrt(other.factor)
    assert reach == pytest.approx(stats.t.isf(alpha / 2, 7))


@given(GROUPS, LEVELS, LEVELS, st.floats(0.2, 2))
def test_bounds_and_p_values_agree_and_move_together(
    groups: float, first: float, second: float, threshold: float
) -> None:
    few = FewGroups(groups)
    ratio = Resampled(1.0, ORDERED, "bootstrap", few)
    share = Proportion(0.9, 40.0, False, few)
    for alpha in (first, second):
        p = ratio.p_at_most(threshold), ratio.p_above(threshold), share.p_at_least(0.8)
        decided = (
            ratio.upper(alpha) <= threshold,
            ratio.lower(alpha) > threshold,
            share.lower(alpha) >= 0.8,
        )
        for value, sure in zip(p, decided, strict=True):
            assert abs(value - alpha) < 1e-9 or (value <= alpha) == sure
    strict, loose = sorted((first, second))
    for found in (ratio, share):
        assert found.lower(strict) <= found.lower(loose) <= found.upper(loose)
        assert found.upper(loose) <= found.upper(strict)


@pytest.mark.parametrize(
    ("trajectories", "bounded"), [(2, False), (3, False), (5, True), (6, True)]
)
def test_so_few_trajectories_bound_no_ratio(trajectories: int, bounded: bool) -> None:
    own, reference = drawn(trajectories)
    found = judge(own, reference, PROTOCOL, Thresholds(0.01, 0.1), EvidenceOptions())
    assert found.ir_relative is not None
    assert np.isfinite(found.ir_relative.upper) == bounded
    assert (found.ir_relative.lower > 0) == bounded
    assert bounded == (found.confident_outcome is Outcome.FAILED)
    if not bounded:
        assert found.ir_raw.lower < 0.9 * float(np.quantile(own.radius, 0.9))


def test_at_99_percent_eight_trajectories_are_too_few_for_a_wrong_word() -> None:
    """With the allowance of 95 % some 3 % of these are wrong."""
    generator = np.random.default_rng(4)
    population = Population(96, per_trajectory=12, within=0.8)
    options, wrong = EvidenceOptions(0.99, 400), 0
    for _ in range(60):
        own, reference = experiment(population, generator)
        found = judge(own, reference, PROTOCOL, Thresholds(0.2, 0.01), options)
        wrong += found.confident_outcome is not Outcome.UNDECIDED
    assert wrong <= 3


@given(st.integers(2, 12), st.integers(0, 1000), st.sampled_from([0.5000001, 0.95, 0.99]))
def test_odd_samples_give_no_nan_and_no_contradiction(
    count: int, seed: int, confidence: float
) -> None:
    generator = np.random.default_rng(seed)
    eligible = generator.integers(1, count + 1)
    places = np.arange(count)
    partner = np.where(places < eligible, (places + 1) % count, -1)
    distance = np.where(partner < 0, np.nan, np.round(generator.gamma(3, 0.5, count), 1))
    own, other = (
        AnchorSample(
            np.round(generator.gamma(2, scale, count), 1) + floor,
            distance,
            partner,
            places // generator.integers(1, 4),
        )
        for scale, floor in ((0.2, 0.0), (1, 0.1))
    )
    for thresholds in (Thresholds(0.3, 0.95), Thresholds(1e-300, 1.0)):
        found = judge(own, other, PROTOCOL, thresholds, EvidenceOptions(confidence, 200))
        for name in ("ir_raw", "ir_relative", "sr", "score", "delta_score"):
            interval = getattr(found, name)
            assert interval.lower <= interval.upper, name  # false of NaN
        alpha, outcome = 1 - confidence, found.confident_outcome
        assert (found.p_passed <= alpha) == (outcome is Outcome.PASSED)
        assert (found.p_failed <= alpha) == (outcome is Outcome.FAILED)
        assert found.anchors_to_decide is None or found.anchors_to_decide > count


def test_resampling_ends_when_the_job_does() -> None:
    def cancelled() -> None:
        raise Cancelled("the request was cancelled")

    with pytest.raises(Cancelled):
        judge(*drawn(30), PROTOCOL, Thresholds(), EvidenceOptions(), cancelled)


def test_a_request_cannot_keep_a_server_resampling() -> None:
    """Its anchors times its resamples are bounded, and the error says which number to lower."""
    most = EvidenceOptions(resamples=100_000)
    for count, fits in ((10_000, True), (10_001, False)):
        asked = ScoreRequest(CheckpointRef("model"), "a" * 64, GaussianNoise(0.1), evidence=most)
        if fits:
            asked.check_looks(count)
        else:
            with pytest.raises(ArgumentError, match="wanted at most 99990") as error:
                asked.check_looks(count)
            assert error.value.field == "evidence.resamples"
