"""Corrections for many statements: against brute force, and where the truth is known."""

import itertools
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import pytest
from acpc.arrays import NDArray
from acpc_lab.evidence import (
    all_hold,
    any_holds,
    benjamini_hochberg,
    benjamini_yekutieli,
    holm,
)
from hypothesis import given
from hypothesis import strategies as st

P = st.floats(0, 1) | st.sampled_from([0.0, 0.001, 0.01, 0.025, 0.05, 1.0])
FAMILIES = st.lists(P, max_size=6)


def closed_testing(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of the closed test (Marcus, Peritz and Gabriel 1976) with Bonferroni.

    A hypothesis is rejected when every set of hypotheses that holds it is rejected.
    """
    every = range(len(p_values))
    sets = [s for size in range(1, len(p_values) + 1) for s in itertools.combinations(every, size)]
    bonferroni = {s: min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets}
    return [max(p for s, p in bonferroni.items() if i in s) for i in every]


@given(FAMILIES)
def test_holm_is_the_closed_test_of_bonferroni(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(closed_testing(p_values))


def step_up(p_values: Sequence[float], level: float, dependence: float) -> set[int]:
    """What Benjamini and Hochberg (1995) reject: up to the last rank whose p-value is small."""
    n, rejected = len(p_values), set[int]()
    for rank in range(1, n + 1):
        smallest = sorted(range(n), key=lambda i: p_values[i])[:rank]
        if p_values[smallest[-1]] * n * dependence <= rank * level:
            limit = p_values[smallest[-1]]
            rejected = {i for i in range(n) if p_values[i] <= limit}
    return rejected


@given(FAMILIES, st.sampled_from([0.01, 0.05, 0.1, 0.3]))
def test_adjusted_values_reject_what_the_step_up_procedure_does(
    p_values: list[float], level: float
) -> None:
    harmonic = sum(1 / rank for rank in range(1, len(p_values) + 1))
    for adjust, dependence in ((benjamini_hochberg, 1.0), (benjamini_yekutieli, harmonic)):
        found = adjust(p_values)
        for near in (level * (1 - 1e-9), level * (1 + 1e-9)):  # not where rounding decides
            rejected = {i for i, p in enumerate(found) if p <= near}
            assert rejected == step_up(p_values, near, dependence) or any(
                abs(p - near) < 1e-12 for p in found
            )
    pairs = zip(benjamini_hochberg(p_values), holm(p_values), strict=True)
    assert all(least <= most + 1e-12 for least, most in pairs)


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg, benjamini_yekutieli])
@given(p_values=FAMILIES, data=st.data())
def test_what_holds_while_a_sweep_runs_holds_when_it_ends(
    adjust: Callable[[Sequence[float]], list[float]], p_values: list[float], data: st.DataObject
) -> None:
    """A cell that is still to come counts as 1, and no adjusted p-value rises when it arrives."""
    coming = data.draw(st.sets(st.integers(0, len(p_values) - 1)) if p_values else st.just(set()))
    before = adjust([1.0 if i in coming else p for i, p in enumerate(p_values)])
    assert all(late <= early for early, late in zip(before, adjust(p_values), strict=True))


def test_nothing_asked_is_nothing_claimed() -> None:
    assert holm([]) == benjamini_hochberg([]) == benjamini_yekutieli([]) == []
    assert all_hold([]) == any_holds([]) == 1


SWEEPS, CHECKPOINTS, SHIFTS, LEVEL = 4000, 6, 4, 0.05
# Three standard errors of a share of 5 % among so many sweeps.
MOST = LEVEL + 3 * (LEVEL * (1 - LEVEL) / SWEEPS) ** 0.5


def p_values(truth: NDArray[np.float64], dependence: float) -> NDArray[np.float64]:
    """One-sided p-values of normal measurements, (sweeps, *truth.shape).

    ``truth`` says how many standard errors a cell lies beyond its threshold, at most 0 where it
    does not pass. Cells share anchors: any two correlate by ``dependence``.
    """
    random = np.random.default_rng(2026)
    common = random.standard_normal((SWEEPS, *(1,) * truth.ndim))
    own = random.standard_normal((SWEEPS, *truth.shape))
    seen = truth + np.sqrt(dependence) * common + np.sqrt(1 - dependence) * own
    return np.vectorize(NormalDist().cdf)(-seen)


def share(wrong: list[bool]) -> float:
    return sum(wrong) / len(wrong)


@pytest.mark.parametrize("dependence", [0.0, 0.6])
def test_at_most_one_sweep_in_twenty_names_a_cell_that_does_not_pass(dependence: float) -> None:
    """Half of the cells lie at the boundary and half pass by far: the hardest case for Holm."""
    truth = np.zeros(CHECKPOINTS * SHIFTS)
    truth[::2] = 4.0
    measured = p_values(truth, dependence).tolist()
    at_threshold = np.flatnonzero(truth == 0).tolist()
    corrected = [holm(p) for p in measured]
    assert share([any(p[i] <= LEVEL for i in at_threshold) for p in corrected]) <= MOST
    # What correction is for: without it, far more of them name one.
    assert share([any(p[i] <= LEVEL for i in at_threshold) for p in measured]) > 3 * LEVEL


def test_passes_under_every_shift_needs_no_correction_over_shifts() -> None:
    """Every checkpoint lies at the threshold under one shift and passes the others by far."""
    truth = np.full((CHECKPOINTS, SHIFTS), 6.0)
    truth[:, 0] = 0.0
    everywhere = [[all_hold(shifts) for shifts in sweep] for sweep in p_values(truth, 0.3).tolist()]
    first = share([p[0] <= LEVEL for p in everywhere])
    assert LEVEL / 2 < first <= MOST  # of one checkpoint: the whole level is used
    assert share([min(p) <= LEVEL for p in everywhere]) > 2 * LEVEL
    assert share([min(holm(p)) <= LEVEL for p in everywhere]) <= MOST


@pytest.mark.parametrize("dependence", [0.0, 0.6])
def test_of_the_cells_that_are_named_one_in_twenty_does_not_pass_at_most(dependence: float) -> None:
    """On average over sweeps; independent at the boundary half of one in twenty, as proven."""
    truth = np.zeros(CHECKPOINTS * SHIFTS)
    truth[::2] = 3.0
    measured = p_values(truth, dependence).tolist()

    def named(adjust: Callable[[Sequence[float]], list[float]]) -> tuple[float, float]:
        """The mean share of wrong ones among those named, and how many rightly are."""
        found = [np.array(adjust(p)) <= LEVEL for p in measured]
        wrong = [float(one[truth == 0].sum() / max(1, one.sum())) for one in found]
        error = float(np.std(wrong)) / SWEEPS**0.5
        assert np.mean(wrong) <= LEVEL / 2 + 3 * error
        if not dependence and adjust is benjamini_hochberg:
            assert np.mean(wrong) >= LEVEL / 2 - 3 * error
        return float(np.mean(wrong)), float(np.mean([one[truth > 0].sum() for one in found]))

    shares, powers = zip(*map(named, (benjamini_hochberg, benjamini_yekutieli, holm)), strict=True)
    assert powers[0] > max(powers[1:])  # what it is for
    assert shares[1] < shares[0]


def test_where_cells_depend_badly_yekutieli_holds_and_hochberg_does_not() -> None:
    """The worst case of Guo and Rao (2008): of 8 true hypotheses, by chance k are at k q / 8."""
    n, level, random = 8, 0.3, np.random.default_rng(7)
    harmonic, sweeps = sum(1 / k for k in range(1, n + 1)), 20_000
    wrong = np.zeros(2)
    for _ in range(sweeps):
        p = np.full(n, 1.0)
        u, size = random.random(), 0
        for k in range(1, n + 1):  # k of them lie in ((k-1) q/n, k q/n] with chance q / k
            u -= level / k
            if u < 0:
                size = k
                break
        low = size * level / n if size else level
        p[:] = level + (1 - level) * random.random(n)
        p[random.permutation(n)[:size]] = low - level / n * random.random(size)
        wrong += [min(adjust(p.tolist())) <= level
                  for adjust in (benjamini_hochberg, benjamini_yekutieli)]  # fmt: skip
    rates = wrong / sweeps
    assert rates[0] == pytest.approx(level * harmonic, abs=0.02)
    assert rates[1] <= level + 0.01
