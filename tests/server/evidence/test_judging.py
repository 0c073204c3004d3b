"""Evidence is the written method's, keeps what may not matter out, and never contradicts itself."""

from dataclasses import replace
from typing import Any

import evidence_reference as slow
import numpy as np
import pytest
from acpc.contract import (
    CheckpointRef,
    Doubt,
    Evidence,
    EvidenceOptions,
    GaussianNoise,
    Outcome,
    ScoreProtocol,
    ScoreRequest,
    Thresholds,
)
from acpc.contract.errors import ArgumentError
from acpc.evidence import dyadic_variance, groups
from acpc_server.errors import Cancelled, FailedPrecondition
from acpc_server.evidence import CheckpointSample, judge
from acpc_server.evidence.numbers import Numbers
from hypothesis import given
from hypothesis import strategies as st
from synthetic_scores import Population, experiment

FEW = EvidenceOptions(resamples=300)
PROTOCOL = ScoreProtocol()
POPULATION = Population(anchors=120, per_trajectory=3, within=0.4, distance=2.0)
SEEDS = st.integers(0, 10_000)
NAMES = ("ir_raw", "reference_ir_raw", "ir_relative", "sr", "reference_sr", "score", "delta_score")


Pair = tuple[CheckpointSample, CheckpointSample]


def drawn(seed: int, population: Population = POPULATION) -> Pair:
    return experiment(population, np.random.default_rng(seed))


def judged(own: CheckpointSample, other: CheckpointSample | None, **changed: Any) -> Evidence:
    given = {"protocol": PROTOCOL, "thresholds": Thresholds(), "options": FEW, **changed}
    return judge(own, other, *given.values())


def ends(found: Evidence, name: str) -> tuple[float, float]:
    interval = getattr(found, name)
    return interval.lower, interval.upper


@pytest.mark.parametrize("seed", [3, 4])
def test_numbers_are_resampled_as_the_page_says(seed: int) -> None:
    own, other = drawn(seed, replace(POPULATION, distance=1.0))
    found = judged(own, other)
    wanted = slow.joint_bounds(
        (own.radius.tolist(), other.radius.tolist()),
        own.distance.tolist(),
        own.partner.tolist(),
        [int(g) for g in groups(own, FEW.population)],
        0.9,
        0.1,
        300,
        FEW.seed,
        0.05,
    )
    for name, bounds in wanted.items():
        assert ends(found, name) == pytest.approx(bounds, rel=1e-9), name


@given(st.integers(2, 12), SEEDS)
def test_the_variance_of_pairs_is_all_products_that_share_an_end(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    ends = generator.integers(0, size, (2, 20))
    hits = generator.integers(0, 2, 20).astype(float)
    found = dyadic_variance(hits - hits.mean(), ends)
    pairs = [(int(a), int(b)) for a, b in ends.T]
    assert found == pytest.approx(slow.pair_variance(hits.tolist(), pairs), abs=1e-9)


@given(SEEDS, st.sampled_from([0.8, 0.95, 0.99]))
def test_the_verdict_and_the_p_values_are_what_the_intervals_show(
    seed: int, confidence: float
) -> None:
    thresholds = Thresholds(0.22, 0.9)
    found = judged(*drawn(seed), thresholds=thresholds, options=EvidenceOptions(confidence, 300))
    ratio, alpha = found.ir_relative, 1 - confidence
    assert found.score is not None
    passed = ratio.upper <= thresholds.ir and found.sr.lower >= thresholds.sr
    failed = ratio.lower > thresholds.ir or found.sr.upper < thresholds.sr
    wanted = Outcome.PASSED if passed else Outcome.FAILED if failed else Outcome.UNDECIDED
    assert found.confident_outcome is wanted
    assert (found.p_passed <= alpha) == passed
    assert (found.p_failed <= alpha) == failed
    assert (found.score.lower >= 0) == passed
    assert (found.score.upper < 0) == failed
    assert (found.doubt is Doubt.NONE) == (wanted is not Outcome.UNDECIDED)
    assert found.anchors_to_decide is None
    if found.trajectories_to_decide is not None:
        assert wanted is Outcome.UNDECIDED
        assert found.trajectories_to_decide > POPULATION.anchors / POPULATION.per_trajectory


def test_without_a_reference_only_sr_is_decided() -> None:
    own, _ = drawn(1, replace(POPULATION, distance=50.0))
    lenient = Thresholds(sr=0.5)
    found = judged(own, None, thresholds=lenient)
    assert found.confident_outcome is Outcome.INCONCLUSIVE
    absent = (found.ir_relative, found.reference_sr, found.score, found.delta_score)
    assert absent == (None,) * 4
    assert found.p_passed == 1
    near, _ = drawn(1, replace(POPULATION, distance=0.05))
    assert judged(near, None, thresholds=lenient).confident_outcome is Outcome.FAILED


@pytest.mark.parametrize(("apart", "ranks"), [(0.6, 25), (3.0, 50)])
def test_pairs_that_a_larger_ir_would_not_separate_do_not_surely_agree(
    apart: float, ranks: int
) -> None:
    """Of 100 radii seven are 1, so that raw IR is 0.1 and its upper end is 1."""
    radius = np.where(np.arange(100) < 7, 1.0, 0.1)
    distance = np.where(np.arange(100) % 2, 3.0, apart)
    own = CheckpointSample(radius, distance, (np.arange(100) + 1) % 100, np.arange(100))
    found = Numbers.of(own, own, PROTOCOL, EvidenceOptions(resamples=999))
    assert found.sr.point == 1.0 and found.ir_raw.upper(0.1) == 1.0
    assert found.sr.lower(0.05) == found.sr.low[ranks - 1]


def test_a_checkpoint_against_itself_has_relative_ir_one() -> None:
    own, _ = drawn(1)
    found = judged(own, own)
    assert ends(found, "ir_relative") == (1, 1)
    assert found.confident_outcome is Outcome.FAILED


def test_a_reference_that_does_not_react_has_no_relative_ir() -> None:
    own, other = drawn(1)
    still = replace(other, radius=np.zeros_like(other.radius))
    with pytest.raises(FailedPrecondition, match="relative IR is undefined"):
        judged(own, still)


def test_little_to_go_by_is_said_in_words() -> None:
    own, other = drawn(2, replace(POPULATION, anchors=12, per_trajectory=2))
    found = judged(own, other)
    assert any("eligible anchors" in note for note in found.notes)
    assert any("6 trajectories" in note and "from 46 or more" in note for note in found.notes)
    assert found.unseen == pytest.approx(1 - 0.05 ** (1 / 6), abs=0.06)
    assert found.blind_spot.endswith(" % of them may be of a kind not measured")
    alone = [replace(s, trajectory=np.zeros(12, np.int64)) for s in (own, other)]
    single = judged(*alone)
    assert any("one trajectory" in note for note in single.notes)
    assert single.confident_outcome is Outcome.UNDECIDED
    assert single.unseen == pytest.approx(0.95, abs=0.02)
    rough = replace(own, rounding_floor=1.0)
    assert any("rounding" in n for n in judged(rough, other).notes)
    plenty = drawn(2, Population(distance=3.0))
    assert judged(*plenty).notes == ()


@pytest.mark.parametrize("trajectories", [25, 42])
def test_so_few_trajectories_have_no_upper_end(trajectories: int) -> None:
    """0.9^36 is below 0.025: from 36 on they show that not a tenth of all reacts more."""
    own, other = drawn(2, Population(trajectories, distance=3.0))
    found = judged(own, other, options=EvidenceOptions())
    bounded = trajectories >= 36
    for end in (found.ir_raw.upper, found.ir_relative.upper):
        assert np.isfinite(end) == bounded
    assert (found.sr.lower > 0) == (found.ir_relative.lower > 0) == bounded
    assert found.trajectories_to_decide is None or found.trajectories_to_decide >= 36


def test_a_quantile_above_all_anchors_decides_nothing() -> None:
    own, other = drawn(2, replace(POPULATION, distance=50.0))
    found = judged(own, other, protocol=ScoreProtocol(quantile=1.0))
    assert ends(found, "ir_relative") == (0, np.inf)
    assert found.confident_outcome is Outcome.UNDECIDED
    assert found.anchors_to_decide is None


@pytest.mark.parametrize("hubs", [1, 3])
def test_few_partners_of_all_are_a_sample_of_few(hubs: int) -> None:
    """Whatever three partners say, at 95 % a fifth of all others may say the opposite."""
    own, other = experiment(Population(hubs=hubs, distance=50.0), np.random.default_rng(3))
    found = judged(own, other, options=EvidenceOptions())
    assert found.sr.lower < 0.05 ** (1 / hubs) + 0.05
    assert found.confident_outcome is not Outcome.PASSED


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
        found = judged(own, other, thresholds=thresholds, options=EvidenceOptions(confidence, 200))
        for name in ("ir_raw", "ir_relative", "sr", "score", "delta_score"):
            lower, upper = ends(found, name)
            assert lower <= upper, name  # false of NaN
        alpha, outcome = 1 - confidence, found.confident_outcome
        assert (found.p_passed <= alpha) == (outcome is Outcome.PASSED)
        assert (found.p_failed <= alpha) == (outcome is Outcome.FAILED)
        assert found.anchors_to_decide is None or found.anchors_to_decide > count


def test_resampling_ends_when_the_job_does() -> None:
    def cancelled() -> None:
        raise Cancelled("the request was cancelled")

    with pytest.raises(Cancelled):
        judge(*drawn(1), PROTOCOL, Thresholds(), EvidenceOptions(), cancelled)


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
