"""Sure means sure: of the windows of a dataset known whole, and of trajectories that are odd."""

from dataclasses import replace

import numpy as np
import pytest
from acpc.contract import Doubt, EvidenceOptions, Outcome, Population, ScoreProtocol, Thresholds
from acpc_server.evidence import CheckpointSample, draws_are_shared, exact, judge
from acpc_server.evidence import other_population as of_other
from hard_scores import World, of_dataset
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from synthetic_scores import covered

NAMES = ("ir_raw", "ir_relative", "sr")
PROTOCOL, FEW = ScoreProtocol(), EvidenceOptions(resamples=400)
TRAJECTORIES = replace(FEW, population=Population.TRAJECTORIES)


def judged(world: World, count: int, options: EvidenceOptions, seed: int = 0):  # noqa: ANN201
    pair = world.draw(count, np.random.default_rng(seed))
    return judge(*pair, PROTOCOL, Thresholds(), options)


PERFECT = World(relative=0.1, apart=50.0)


def test_a_hundred_perfect_anchors_decide_of_their_dataset() -> None:
    """Relative IR 0.1 and SR 1: of the dataset's windows always, of new trajectories hardly."""
    assert all(
        judged(PERFECT, 100, of_dataset(resamples=2000), seed).confident_outcome is Outcome.PASSED
        for seed in range(10)
    )
    other = judged(PERFECT, 100, TRAJECTORIES)
    assert other.confident_outcome is Outcome.UNDECIDED
    assert other.anchors_to_decide is None and other.trajectories_to_decide is not None


def test_both_populations_stand_in_the_answer() -> None:
    pair = PERFECT.draw(100, np.random.default_rng(1))
    own = judge(*pair, PROTOCOL, Thresholds(), of_dataset())
    other = of_other(*pair, PROTOCOL, Thresholds(), of_dataset())
    assert (own.population, other.population) == (Population.DATASET, Population.TRAJECTORIES)
    assert own.windows == PERFECT.windows and "3,000 windows of this dataset" in own.of_what
    assert own.ir_raw.upper < other.ir_raw.upper
    again = of_other(
        *pair, PROTOCOL, Thresholds(), replace(of_dataset(), population=other.population)
    )
    assert again.ir_raw == own.ir_raw


def test_where_all_windows_are_measured_nothing_is_uncertain() -> None:
    world = World(10, 8)
    found = judged(world, world.windows, of_dataset())
    for interval in (found.ir_raw, found.ir_relative, found.sr):
        assert interval.lower == pytest.approx(interval.upper, rel=1e-12)
    assert found.unseen == 0 and found.blind_spot == ""
    assert found.confident_outcome is not Outcome.UNDECIDED


@pytest.mark.parametrize("apart", [1.0, 3.0])
def test_sr_of_a_sample_hardly_depends_on_the_size_of_a_large_dataset(apart: float) -> None:
    """Of up to 100 times the windows drawn they are counted, of more they are endless."""
    pair = World(apart=apart).draw(80, np.random.default_rng(2))
    ends = []
    for times in (50, 100, 101, 880):
        sized = [replace(side, windows=times * 80) for side in pair]
        found = judge(*sized, PROTOCOL, Thresholds(), of_dataset(resamples=2000)).sr
        assert 0 <= found.lower < found.upper <= 1
        ends.append((found.lower, found.upper))
    assert ends[2] == ends[3]
    assert np.ptp(ends, axis=0).max() < 0.015


def test_an_unseen_window_weighs_in_pairs_as_one_that_was_drawn() -> None:
    """Of 100 windows of 5,000 whose partners decide; one that weighs less passes 5 % wrongly."""
    world = World(100, of_partner=0.95)
    true, options = world.truth(100, 0.95, 200), of_dataset(resamples=200)
    held = covered(lambda g: world.draw(100, g), true, 150, options, 11)
    assert held["passed, SR"] <= 3 / 150 and held["sr"] >= 143 / 150


def test_never_more_anchors_are_promised_to_decide_than_a_dataset_has_windows() -> None:
    pair = World(relative=0.25, apart=3.0).draw(100, np.random.default_rng(2))
    promised = []
    for windows in (101, 150, 400, 3000, 10**6):
        sized = [replace(side, windows=windows) for side in pair]
        found = judge(*sized, PROTOCOL, Thresholds(), of_dataset())
        if found.confident_outcome is Outcome.UNDECIDED:
            promised.append((found.anchors_to_decide, windows))
    assert len(promised) >= 3
    assert all(100 < wanted <= windows for wanted, windows in promised), promised


@given(st.integers(20, 60), st.integers(0, 60), st.sampled_from([0.5, 0.9]))
def test_bounds_of_a_quantile_are_the_hypergeometric_ones(
    count: int, more: int, quantile: float
) -> None:
    windows, levels = count + more, 999
    ordered = np.arange(count, dtype=np.float64)
    low, high = exact.quantile_bounds(ordered, quantile, windows, levels)
    rank = quantile * (windows - 1)
    for level in (24, 49):  # of levels 0.025 and 0.05
        at = (level + 1) / (levels + 1)
        below = stats.hypergeom(windows, int(np.floor(rank)) + 1, count)
        if low[level] > 0:
            assert below.cdf(int(low[level])) <= at * (1 + 1e-6)
        above = stats.hypergeom(windows, int(np.ceil(rank)), count)
        if np.isfinite(high[level]):
            assert above.sf(int(high[level])) <= at * (1 + 1e-6)


@pytest.mark.parametrize(
    ("pairs", "among", "sure"), [(61, None, True), (55, None, False), (30, 90, False)]
)
def test_pairs_that_all_agree_have_the_hypergeometric_bound(
    pairs: int, among: int | None, sure: bool
) -> None:
    low = exact.all_of(pairs, pairs, among, 1999)[99]
    if among is None:
        assert low == pytest.approx(0.05 ** (1 / pairs))
    else:
        missed = round((1 - low) * among)
        chances = [
            stats.hypergeom(among, among - k, pairs).pmf(pairs) for k in (missed, missed + 1)
        ]
        assert chances[0] > 0.05 >= chances[1]
    assert (low >= 0.95) == sure


def test_how_far_a_few_values_lie_from_a_limit_is_uncertain() -> None:
    """Values 3.2 deviations above it: few show that 5 % may lie below, many that these do not."""
    values = np.exp(stats.norm.ppf(np.linspace(0.02, 0.98, 50)))
    limit = float(np.exp(np.log(values).mean() - 3.2 * np.log(values).std()))
    few, many = (exact.reached(values, limit, worth) for worth in (12, 1000))
    assert many < 0.05 < few
    assert exact.reached(values, 0.0, 12) == 0


def test_draws_that_all_anchors_share_decide_nothing() -> None:
    generator = np.random.default_rng(1)
    own = np.exp(0.3 * generator.standard_normal((80, 5)))
    shared = own * np.exp(0.5 * generator.standard_normal(5))
    assert draws_are_shared(shared) and not draws_are_shared(own)
    assert not draws_are_shared(shared[:, :1]) and not draws_are_shared(np.zeros((80, 5)))
    pair = [replace(one, shared_draws=5) for one in PERFECT.draw(100, generator)]
    found = judge(*pair, PROTOCOL, Thresholds(), of_dataset())
    assert found.confident_outcome is Outcome.UNDECIDED and found.doubt is Doubt.DRAWS
    assert found.p_passed == found.p_failed == 1 and any("5 draws" in note for note in found.notes)


def test_an_unseen_trajectory_is_as_long_as_one_of_those_measured() -> None:
    """Sixty trajectories of one window bound IR; where three have forty, one more may be long."""
    generator = np.random.default_rng(2)

    def upper(lengths: np.ndarray) -> float:
        trajectory = np.repeat(np.arange(len(lengths)), lengths)
        count = len(trajectory)
        partner = (np.arange(count) + 1) % count
        sample = CheckpointSample(generator.random(count), np.full(count, 9.0), partner, trajectory)
        return judge(sample, None, PROTOCOL, Thresholds(), TRAJECTORIES).ir_raw.upper

    alike, uneven = np.ones(60, int), np.where(np.arange(60) < 3, 40, 1)
    assert np.isfinite(upper(alike)) and np.isinf(upper(uneven))
