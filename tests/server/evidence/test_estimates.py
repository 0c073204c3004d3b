"""Bounds are order statistics of resamples, and p-values are these bounds inverted."""

import numpy as np
import pytest
from acpc.evidence import Resampled
from acpc_server.evidence.confident import _trials, least_drawn
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

ALPHAS = st.floats(0.002, 0.4)


def resampled(point: float, seed: int) -> Resampled:
    """Of a number that is 1 at most."""
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
