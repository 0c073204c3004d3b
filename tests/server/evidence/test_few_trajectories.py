"""Intervals hold the truth as often as they say, for few trajectories and odd samples."""

from functools import partial

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
from acpc_server.errors import Cancelled
from acpc_server.evidence import CheckpointSample, judge
from hypothesis import given
from hypothesis import strategies as st
from synthetic_scores import POPULATIONS, Population, covered, experiment, truth, with_sr

PROTOCOL = ScoreProtocol()


@pytest.mark.nightly
@pytest.mark.parametrize("name", POPULATIONS)
def test_intervals_hold_and_verdicts_are_right_as_often_as_they_say(name: str) -> None:
    """At least 93 % hold, at most 5 % are wrong, less two standard errors of 800 experiments."""
    population = POPULATIONS[name]()
    true, options = truth(population), EvidenceOptions(resamples=1000)
    found = covered(partial(experiment, population), true, 800, options, seed=11)
    for number in true:
        assert found[number] >= 0.93 - 2 * (0.07 * 0.93 / 800) ** 0.5, number
    for ended in ("passed", "failed"):
        assert found[f"{ended}, both"] <= 0.05 + 2 * (0.05 * 0.95 / 800) ** 0.5


@pytest.mark.parametrize("hubs", [1, 3])
def test_few_partners_of_all_are_a_sample_of_few(hubs: int) -> None:
    """Whatever three partners say, at 95 % a fifth of all others may say the opposite."""
    own, other = experiment(Population(hubs=hubs, distance=50.0), np.random.default_rng(3))
    found = judge(own, other, PROTOCOL, Thresholds(), EvidenceOptions())
    assert found.sr.lower < 0.05 ** (1 / hubs) + 0.05
    assert found.confident_outcome is not Outcome.PASSED


SHORT = {
    "bad": (Population(per_trajectory=2, within=0.3, bad=0.1), 0.9),
    "hubs": (Population(hubs=6), 0.5),
}


@pytest.mark.parametrize("name", SHORT)
def test_rare_bad_trajectories_and_hubs_are_not_overlooked(name: str) -> None:
    """Fifteen experiments of the nightly series: more than four misses come once in 1,000."""
    shape, sr = SHORT[name]
    population = with_sr(shape, sr, sets=100)
    true, few = truth(population, 100), EvidenceOptions(resamples=200)
    found = covered(partial(experiment, population), true, 15, few, 5)
    assert min(found[number] for number in true) > 10 / 15


def drawn(trajectories: int, seed: int = 3) -> tuple[CheckpointSample, CheckpointSample]:
    population = Population(60, per_trajectory=60 // trajectories, within=0.6)
    generator = np.random.default_rng(seed)
    while not (pair := experiment(population, generator))[0].eligible.any():
        pass
    return pair


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
        CheckpointSample(
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
