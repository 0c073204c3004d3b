"""Bounds of the share of draws that leave a choice unchanged: exact, anytime-valid, consistent."""

import math
from functools import cache

import numpy as np
import pytest
from acpc.contract import CoverageOutcome
from acpc_server.evidence import CoverageSequence, CoverageTest, error_share
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta, binomtest

GOAL = CoverageTest(coverage=0.98, error=0.05, max_draws=1000)


@pytest.mark.parametrize(("coverage", "fewest"), [(0.95, 59), (0.98, 149), (0.99, 299)])
def test_the_fewest_draws_of_one_look(coverage: float, fewest: int) -> None:
    """Without a change; five draws would promise only 55 % of all."""
    for draws, shown in ((fewest - 1, False), (fewest, True)):
        test = CoverageTest(coverage, 0.05, draws, one_look=True)
        assert (test.bounds(draws, 0)[0] >= coverage) is shown


@pytest.mark.parametrize(("draws", "changed"), [(5, 0), (149, 0), (149, 3), (300, 300), (40, 39)])
def test_one_look_is_clopper_and_pearson(draws: int, changed: int) -> None:
    lower, upper = CoverageTest(0.98, 0.05, draws, one_look=True).bounds(draws, changed)
    above = binomtest(changed, draws, alternative="less").proportion_ci(0.95, "exact").high
    below = binomtest(changed, draws, alternative="greater").proportion_ci(0.95, "exact").low
    assert (1 - lower, 1 - upper) == pytest.approx((above, below), abs=1e-9)


@pytest.mark.parametrize(("draws", "changed"), [(1, 0), (174, 0), (326, 1), (60, 9), (30, 30)])
def test_many_looks_end_where_the_mixture_reaches_the_error(draws: int, changed: int) -> None:
    """The closed form against the integral over the density of rates."""
    for side, bound in enumerate(GOAL.bounds(draws, changed)):
        rate = 1 - bound
        density = beta(0.5, 100 if side == 0 else 0.5).pdf
        if rate in (0.0, 1.0):
            assert changed == (draws if side == 0 else 0)
            continue

        def ratio(s: float, rate: float = rate, density: object = density) -> float:
            log = changed * math.log(s / rate) + (draws - changed) * math.log((1 - s) / (1 - rate))
            return math.exp(log) * density(s)

        # In pieces, because the density is infinite at its ends and the ratio has a peak.
        ends = [0, 1e-6, 1e-4, 0.002, 0.01, 0.05, 0.2, 0.6, 0.95, 0.9999, 1]
        mixed = sum(quad(ratio, *ends[i : i + 2], limit=200)[0] for i in range(len(ends) - 1))
        assert mixed == pytest.approx(1 / 0.05, rel=1e-3)


@cache
def limits(coverage: float, error: float, most: int) -> tuple[list[int], list[int]]:
    """After each number of draws: most changes with which it holds, fewest with which it fails."""
    test = CoverageTest(coverage, error, most)
    needed = [test.fewest(changed) for changed in range(most)]
    holds = [sum(n is not None and n <= draws for n in needed) - 1 for draws in range(most + 1)]
    fails, changed = [], 0
    for draws in range(most + 1):
        while changed <= draws and test.bounds(max(draws, 1), changed)[1] >= coverage:
            changed += 1
        fails.append(changed)
    return holds, fails


def chances(rate: float, coverage: float, error: float, most: int) -> tuple[float, float]:
    """Chances that the statement is ever shown and ever refuted, looking after every draw."""
    holds, fails = limits(coverage, error, most)
    weight, shown, refuted = np.zeros(most + 2), 0.0, 0.0
    weight[0] = 1.0
    for draws in range(1, most + 1):
        weight[1:] = weight[1:] * (1 - rate) + weight[:-1] * rate
        weight[0] *= 1 - rate
        shown += weight[: holds[draws] + 1].sum()
        weight[: holds[draws] + 1] = 0
        refuted += weight[fails[draws] :].sum()
        weight[fails[draws] :] = 0
    return shown, refuted


@pytest.mark.parametrize(("coverage", "error"), [(0.98, 0.05), (0.9, 0.05), (0.98, 0.2)])
def test_it_is_seldom_wrong_however_often_it_looks(coverage: float, error: float) -> None:
    """Exactly computed, not simulated, at rates on both sides of the goal's."""
    for factor in (0.5, 0.999):
        assert chances((1 - coverage) * factor, coverage, error, 400)[1] <= error
    for factor in (1.001, 1.5):
        assert chances((1 - coverage) * factor, coverage, error, 400)[0] <= error


def test_it_decides_clear_cases() -> None:
    assert chances(0.0, 0.98, 0.05, 400) == (1.0, 0.0)
    assert chances(0.2, 0.98, 0.05, 400)[1] > 0.999


def test_the_draws_a_stable_choice_takes() -> None:
    """174 rather than 149: what it costs to look at any time."""
    assert [GOAL.fewest(changed) for changed in range(4)] == [174, 326, 443, 546]
    assert GOAL.fewest(9) is None


@given(
    coverage=st.floats(0.6, 0.99),
    error=st.floats(1e-6, 0.4),
    draws=st.integers(1, 500),
    share=st.floats(0, 1),
    one_look=st.booleans(),
)
def test_bounds_enclose_what_was_seen(
    coverage: float, error: float, draws: int, share: float, one_look: bool
) -> None:
    changed = round(share * draws)
    test = CoverageTest(coverage, error, draws, one_look)
    lower, upper = test.bounds(draws, changed)
    assert 0 <= lower <= 1 - changed / draws <= upper <= 1
    if changed < draws:
        worse = test.bounds(draws, changed + 1)
        assert worse[0] <= lower
        assert worse[1] <= upper


@given(data=st.data(), coverage=st.floats(0.6, 0.98), error=st.floats(1e-3, 0.3))
def test_a_decision_stays_and_agrees_with_the_bounds(
    data: st.DataObject, coverage: float, error: float
) -> None:
    seen = CoverageSequence(CoverageTest(coverage, error, 300))
    decided = None
    while seen.draws < 300:
        draws = data.draw(st.integers(1, 300 - seen.draws))
        before = seen.lower, seen.upper
        seen.add(draws, data.draw(st.sampled_from([0, 0, 0, 1, draws])))
        assert before[0] <= seen.lower
        assert seen.upper <= before[1]
        if decided is None and seen.outcome is not CoverageOutcome.UNDECIDED:
            decided = seen.outcome
        assert decided in (None, seen.outcome) or seen.lower > seen.upper
        assert (seen.outcome is CoverageOutcome.HOLDS) == (seen.lower >= coverage)


@given(
    coverage=st.floats(0.6, 0.98),
    error=st.floats(1e-3, 0.3),
    draws=st.integers(1, 200),
    changed=st.integers(0, 3),
)
def test_as_many_draws_are_wanted_as_it_takes(
    coverage: float, error: float, draws: int, changed: int
) -> None:
    test = CoverageTest(coverage, error, 1000)
    seen = CoverageSequence(test)
    seen.add(draws, min(changed, draws))
    wanted = seen.wanted()
    if seen.outcome is CoverageOutcome.UNDECIDED and wanted:
        fewer, enough = (test.bounds(draws + n, seen.changed)[0] for n in (wanted - 1, wanted))
        assert fewer < coverage <= enough
    if not wanted:
        assert test.bounds(1000, seen.changed)[0] < coverage


def test_one_look_waits_for_all_draws() -> None:
    seen = CoverageSequence(CoverageTest(0.98, 0.05, 149, one_look=True))
    seen.add(148, 0)
    assert (seen.lower, seen.upper, seen.looks, seen.wanted()) == (0.0, 1.0, 0, 1)
    seen.add(1, 0)
    assert (seen.outcome, seen.looks, seen.wanted()) == (CoverageOutcome.HOLDS, 1, 0)


@given(error=st.floats(1e-6, 0.5), pools=st.integers(0, 30))
def test_the_shares_of_an_error_are_no_more_than_it(error: float, pools: int) -> None:
    shares = [error_share(error, pool, pools) for pool in range(1, 2000)]
    assert sum(shares) <= error * (1 + 1e-9)
    assert all(shares[: pools or None])
    assert not any(shares[pools:] if pools else [])
