"""Bounds and p-values of resamples, of a share of draws, and of how well a model fits its data."""

import math
from dataclasses import replace

import numpy as np
import pytest
from acpc.contract import EvidenceOptions, FitOutcome
from acpc.evidence import Resampled
from acpc_server.evidence import FitErrors, Variant, judge_fit, most_uncertified
from acpc_server.evidence.confident import _trials, least_drawn
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

ALPHAS = st.floats(0.002, 0.4)


def resampled(point: float, seed: int) -> Resampled:
    low, high = np.sort(np.random.default_rng(seed).beta(9, 2, (2, 300)))
    return Resampled(point, low, high, "weights", most=1.0, one_sided=point == 1.0)


RESAMPLED = st.builds(resampled, st.sampled_from([0.3, 0.7, 0.9, 1.0]), st.integers(0, 5))


@given(RESAMPLED, st.floats(0.3, 0.999), ALPHAS)
def test_bounds_clear_a_threshold_exactly_when_their_p_value_says_so(
    found: Resampled, threshold: float, alpha: float
) -> None:
    assert (found.upper(alpha) <= threshold) == (found.p_at_most(threshold) <= alpha)
    assert (found.upper(alpha) < threshold) == (found.p_below(threshold) <= alpha)
    assert (found.lower(alpha) > threshold) == (found.p_above(threshold) <= alpha)
    assert (found.lower(alpha) >= threshold) == (found.p_at_least(threshold) <= alpha)


@given(RESAMPLED, ALPHAS, ALPHAS)
def test_an_interval_holds_its_point_and_that_of_less_confidence(
    found: Resampled, first: float, second: float
) -> None:
    wide, narrow = sorted((first, second))
    assert found.lower(wide) <= found.lower(narrow) <= found.point
    assert found.point <= found.upper(narrow) <= found.upper(wide)


def test_where_all_surely_agree_the_lower_bound_has_the_whole_error() -> None:
    low = np.linspace(0, 1, 999)
    assert Resampled(1.0, low, low, "weights", most=1.0, one_sided=True).lower(0.05) == low[49]
    assert Resampled(1.0, low, low, "weights", most=1.0).lower(0.05) == low[24]


@pytest.mark.parametrize(("hits", "trials"), [(3, 20), (19, 20), (61, 61)])
def test_shares_are_worth_the_trials_of_clopper_and_pearson(hits: int, trials: int) -> None:
    level = 0.95 if hits < trials else 0.9
    bound = stats.binomtest(hits, trials).proportion_ci(level, "exact").low
    assert _trials(hits / trials, float(bound), 0.05) == pytest.approx(trials)


@pytest.mark.parametrize(("quantile", "least"), [(0.9, 40), (0.5, 6)])
def test_so_many_have_an_upper_end_whatever_the_seed(quantile: float, least: int) -> None:
    """0.9^36 is below 0.025, but of 2,000 resamples as many as 50 may say otherwise."""
    assert least_drawn(quantile, 0.05, 2000) == least
    assert stats.binom.sf(49, 2000, quantile**least) < 2e-3
    assert least_drawn(quantile, 0.05, 10**9) == {0.9: 36, 0.5: 6}[quantile]


def tail(draws: int, uncertified: int, share: float) -> float:
    """The chance of at most so many uncertified draws where each is with a chance of ``share``."""
    return math.fsum(
        math.comb(draws, k) * share**k * (1.0 - share) ** (draws - k)
        for k in range(uncertified + 1)
    )


def bisected(draws: int, uncertified: int) -> float:
    """The share at which so few uncertified draws have a chance of 5 %."""
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if tail(draws, uncertified, middle) > 0.05 else (low, middle)
    return high


CASES = [(1, 0), (5, 0), (5, 2), (5, 4), (59, 0), (149, 0), (200, 3), (500, 250), (1000, 999)]


@pytest.mark.parametrize(("draws", "uncertified"), CASES)
def test_it_is_the_root_of_the_binomial_tail(draws: int, uncertified: int) -> None:
    wanted = bisected(draws, uncertified)
    assert most_uncertified(draws, uncertified) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("draws", [1, 2, 5, 59, 149, 4096, 2**20])
def test_without_an_uncertified_draw_it_is_rounded_up_from_its_closed_form(draws: int) -> None:
    exact = -math.expm1(math.log(0.05) / draws)
    found = most_uncertified(draws, 0)
    assert exact <= found <= exact * (1 + 1e-11)


def test_nothing_drawn_and_nothing_certified_bound_nothing() -> None:
    assert [most_uncertified(n, n) for n in (0, 1, 7)] == [1.0, 1.0, 1.0]
    for draws, uncertified in ((3, 4), (3, -1)):
        with pytest.raises(ValueError, match="draws"):
            most_uncertified(draws, uncertified)


OPTIONS = EvidenceOptions(resamples=400)
COUNT, HORIZON = 60, 4


def errors(seed: int = 0, *, skill: float = 0.3, foreign: float = 2.0) -> FitErrors:
    random = np.random.default_rng(seed)
    still = random.gamma(2.0, 1.0, (COUNT, HORIZON))
    own = still * skill * random.lognormal(0, 0.3, still.shape)
    other = own * foreign * random.lognormal(0, 0.2, still.shape)
    return FitErrors(own, still, other, {}, np.arange(COUNT) // 3)


def better(held: FitErrors, factor: float, seen: int = 20) -> Variant:
    random = np.random.default_rng(5)
    error = held.own * factor * random.lognormal(0, 0.1, held.own.shape)
    error[seen:] = np.nan
    return Variant(error, held.still)


def test_ratios_are_those_of_sums_in_any_order_and_unit() -> None:
    held = errors()
    found = judge_fit(held, OPTIONS)
    assert found is not None and found.outcome is FitOutcome.FITS
    assert found.skill == pytest.approx(held.own.sum() / held.still.sum())
    assert found.foreign == pytest.approx(held.own.sum() / held.foreign.sum())
    for step in range(HORIZON):
        wanted = held.own[:, step].sum() / held.still[:, step].sum()
        assert found.step_skill[step] == pytest.approx(wanted)
    assert found.interval.lower < found.skill < found.interval.upper
    scaled = judge_fit(
        replace(held, own=8 * held.own, still=8 * held.still, foreign=8 * held.foreign), OPTIONS
    )
    assert scaled == found
    # The bootstrap of a loop: exponential weights of trajectories.
    random, totals = np.random.default_rng(1), []
    for _ in range(2000):
        weights = random.standard_exponential(COUNT // 3)[held.trajectory][:, None]
        totals.append((weights * held.own).sum() / (weights * held.still).sum())
    ends = np.quantile(totals, [0.025, 0.975])
    width = found.interval.upper - found.interval.lower
    assert width == pytest.approx(ends[1] - ends[0], rel=0.25)


def test_standing_still_and_ignored_actions_do_not_fit() -> None:
    worse = judge_fit(errors(skill=1.4), OPTIONS)
    assert worse is not None and worse.outcome is FitOutcome.DOES_NOT_FIT
    held = errors()
    ignored = judge_fit(replace(held, foreign=held.own), OPTIONS)
    assert ignored is not None and ignored.foreign == 1
    assert ignored.outcome is FitOutcome.DOES_NOT_FIT
    near = judge_fit(errors(skill=0.92), OPTIONS)
    assert near is not None and near.outcome is FitOutcome.UNDECIDED
    alone = judge_fit(replace(held, trajectory=np.zeros(COUNT, np.int64)), OPTIONS)
    assert alone is not None and alone.outcome is FitOutcome.UNDECIDED
    assert (alone.interval.lower, alone.interval.upper) == (0, np.inf)
    assert judge_fit(replace(held, still=np.zeros_like(held.still)), OPTIONS) is None


@pytest.mark.parametrize(
    ("factor", "sure", "listed"), [(0.7, True, True), (0.94, False, True), (1.3, False, False)]
)
def test_a_cause_is_sure_where_it_surely_matters(factor: float, sure: bool, listed: bool) -> None:
    held = errors()
    found = judge_fit(replace(held, variants={"bgr": better(held, factor)}), OPTIONS)
    assert found is not None
    assert [(one.name, one.sure) for one in found.causes] == [("bgr", sure)] * listed
    unsure = FitOutcome.UNDECIDED if listed else FitOutcome.FITS
    assert found.outcome is (FitOutcome.DOES_NOT_FIT if sure else unsure)
    if listed:
        [cause] = found.causes
        assert cause.anchors == 20
        assert cause.instead_of == pytest.approx(held.own[:20].sum() / held.still[:20].sum())


def test_causes_come_best_first_and_those_that_predict_nothing_not_at_all() -> None:
    held = errors(skill=1.5)
    variants = {"bgr": better(held, 0.4), "mirrored": better(held, 0.2)}
    variants["upside_down"] = better(held, 0.9)  # better than it was, and no better than still
    found = judge_fit(replace(held, variants=variants), OPTIONS)
    assert found is not None
    assert [one.name for one in found.causes] == ["mirrored", "bgr"]
    assert found.tried == ("bgr", "mirrored", "upside_down")
