"""Family-wise error control: against references by brute force, and where the truth is known."""

import itertools
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pytest
from acpc.arrays import NDArray
from acpc_lab.evidence import all_hold, any_holds, holm
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


@given(FAMILIES, st.data())
def test_what_holds_while_a_sweep_runs_holds_when_it_ends(
    p_values: list[float], data: st.DataObject
) -> None:
    """A cell that is still to come counts as 1, and no adjusted p-value rises when it arrives."""
    coming = data.draw(st.sets(st.integers(0, len(p_values) - 1)) if p_values else st.just(set()))
    before = holm([1.0 if i in coming else p for i, p in enumerate(p_values)])
    assert all(late <= early for early, late in zip(before, holm(p_values), strict=True))


def test_nothing_asked_is_nothing_claimed() -> None:
    assert holm([]) == []
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
