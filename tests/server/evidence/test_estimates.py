"""Bounds are those of the published methods, and p-values are these bounds inverted."""

import numpy as np
import pytest
from acpc.evidence import OrderStatistics, Proportion, Resampled
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

ALPHAS = st.floats(0.002, 0.4)
SHARES = st.integers(0, 40).map(lambda hits: hits / 40)
PROPORTIONS = st.builds(Proportion, SHARES, st.floats(2, 400), st.booleans())
RESAMPLED = st.builds(
    lambda point, seed: Resampled(
        point, np.sort(np.random.default_rng(seed).gamma(4, 0.25, 300)), "bootstrap"
    ),
    st.floats(0.3, 2),
    st.integers(0, 5),
)


@given(PROPORTIONS, st.floats(0.01, 0.99), ALPHAS)
def test_a_share_clears_a_threshold_exactly_when_its_p_value_says_so(
    share: Proportion, threshold: float, alpha: float
) -> None:
    close = 1e-9 * alpha
    if abs(share.p_at_least(threshold) - alpha) > close:
        assert (share.lower(alpha) >= threshold) == (share.p_at_least(threshold) <= alpha)
    if abs(share.p_below(threshold) - alpha) > close:
        assert (share.upper(alpha) < threshold) == (share.p_below(threshold) <= alpha)


@given(RESAMPLED, st.floats(0.05, 3), ALPHAS)
def test_resamples_clear_a_threshold_exactly_when_their_p_value_says_so(
    found: Resampled, threshold: float, alpha: float
) -> None:
    assert (found.upper(alpha) <= threshold) == (found.p_at_most(threshold) <= alpha)
    assert (found.lower(alpha) > threshold) == (found.p_above(threshold) <= alpha)


@given(st.one_of(PROPORTIONS, RESAMPLED), ALPHAS, ALPHAS)
def test_an_interval_holds_its_point_and_that_of_less_confidence(
    found: Proportion | Resampled, first: float, second: float
) -> None:
    wide, narrow = sorted((first, second))
    assert found.lower(wide) <= found.lower(narrow) <= found.point
    assert found.point <= found.upper(narrow) <= found.upper(wide)


def test_exact_bounds_are_those_of_clopper_and_pearson() -> None:
    for hits, trials in ((0, 7), (3, 20), (19, 20)):
        found = stats.binomtest(hits, trials).proportion_ci(0.95, "exact")
        share = Proportion(hits / trials, trials, exact=True)
        assert (share.lower(0.05), share.upper(0.05)) == pytest.approx((found.low, found.high))


def test_where_all_agree_the_lower_bound_has_the_whole_error() -> None:
    """61 of 61 pairs show 0.952 at 95 %, the rule of three."""
    share = Proportion(1.0, 61, exact=False)
    assert share.lower(0.05) == pytest.approx(0.05 ** (1 / 61)) == pytest.approx(0.952, abs=5e-4)
    assert share.upper(0.05) == 1
    assert Proportion(63 / 64, 64, exact=True).lower(0.1) == pytest.approx(0.928, abs=5e-4)


@pytest.mark.parametrize(("count", "q"), [(40, 0.9), (100, 0.9), (100, 0.5), (400, 0.95)])
def test_order_statistics_lie_beyond_a_quantile_with_the_tails_probability(
    count: int, q: float
) -> None:
    """The ranks on either side of each bound have more and less than the tail's probability."""
    ranks = np.arange(1.0, count + 1)
    found = OrderStatistics(q * (count + 1), ranks, q, count)
    low, high = found.lower(0.05), found.upper(0.05)
    below = stats.binom(count, q).cdf
    # So few values below the quantile that the value of this rank is above it.
    assert below(np.floor(low) - 1) <= 0.025 + 1e-9
    assert below(np.ceil(low)) > 0.025
    assert 1 - below(np.ceil(high) - 1) <= 0.025 + 1e-9
    assert 1 - below(np.floor(high) - 2) > 0.025


@pytest.mark.parametrize(("q", "ends"), [(0.9, (None, np.inf)), (1.0, (20, np.inf)), (0.0, (0, 1))])
def test_a_quantile_beyond_all_values_has_no_bound(
    q: float, ends: tuple[float | None, float]
) -> None:
    values = np.arange(1.0, 21)
    found = OrderStatistics(float(np.quantile(values, q)), values, q, 20)
    assert found.upper(0.05) == ends[1]
    assert ends[0] is None or found.lower(0.05) == ends[0]
