"""The bound on the share of draws that may change a choice, and how often it holds."""

import math

import numpy as np
import pytest
from acpc_server.evidence import most_uncertified


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


@pytest.mark.parametrize("draws", [5, 20, 149])
@pytest.mark.parametrize("share", [0.004, 0.02, 0.1, 0.3, 0.7, 0.97])
def test_it_covers_the_true_share_at_least_as_often_as_it_says(draws: int, share: float) -> None:
    """By simulation of draws, and by the exact chance of the counts that are too low."""
    bounds = np.array([most_uncertified(draws, k) for k in range(draws + 1)])
    found = np.random.default_rng(draws).binomial(draws, share, size=20_000)
    assert (bounds[found] >= share).mean() >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 20_000)
    wrong = int((bounds < share).sum())  # counts below this one
    assert wrong == 0 or tail(draws, wrong - 1, share) <= 0.05
