"""Family-wise error control: against references by brute force, and where the truth is known."""

import itertools
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pytest
from acpc.arrays import NDArray
from acpc_lab.evidence import all_hold, any_holds, held_in_sequence, holm
from hypothesis import given
from hypothesis import strategies as st

P = st.floats(0, 1) | st.sampled_from([0.0, 0.001, 0.01, 0.025, 0.05, 1.0])
FAMILIES = st.lists(P, max_size=6)
SEQUENCES = st.lists(st.lists(P, min_size=1, max_size=4), min_size=1, max_size=4)
LEVELS = st.sampled_from([0.01, 0.05, 0.3])


def closed_testing(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of the closed test (Marcus, Peritz and Gabriel 1976) with Bonferroni.

    A hypothesis is rejected when every set of hypotheses that holds it is rejected.
    """
    every = range(len(p_values))
    sets = [s for size in range(1, len(p_values) + 1) for s in itertools.combinations(every, size)]
    bonferroni = {s: min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets}
    return [max(p for s, p in bonferroni.items() if i in s) for i in every]


def graphical(sequences: Sequence[Sequence[float]], level: float) -> list[int]:
    """Algorithm 1 of Bretz and others (2009), hypothesis by hypothesis, weights as a graph.

    The share of a hypothesis goes to the next of its sequence; that of a last one, equally to the
    first ones of the other sequences.
    """
    nodes = [(k, i) for k, sequence in enumerate(sequences) for i in range(len(sequence))]
    share = {node: level / len(sequences) if node[1] == 0 else 0.0 for node in nodes}
    edge = dict.fromkeys(itertools.product(nodes, nodes), 0.0)
    for k, i in nodes:
        if (k, i + 1) in share:
            edge[(k, i), (k, i + 1)] = 1.0
            continue
        for other in range(len(sequences)):
            if other != k:
                edge[(k, i), (other, 0)] = 1.0 / (len(sequences) - 1)
    left = list(nodes)
    while found := [n for n in left if sequences[n[0]][n[1]] <= share[n] * (1 + 1e-12) > 0]:
        gone = found[0]
        left.remove(gone)
        before = dict(edge)
        for a in left:
            share[a] += share[gone] * before[gone, a]
            for b in left:
                loop = before[a, gone] * before[gone, a]
                through = before[a, b] + before[a, gone] * before[gone, b]
                edge[a, b] = through / (1 - loop) if a != b and loop < 1 else 0.0
    return [sum(n[0] == k and n not in left for n in nodes) for k in range(len(sequences))]


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


@given(SEQUENCES, LEVELS)
def test_sequences_are_the_graphical_procedure(sequences: list[list[float]], level: float) -> None:
    assert held_in_sequence(sequences, level) == graphical(sequences, level)


@given(st.lists(P, min_size=1, max_size=6), LEVELS)
def test_sequences_of_one_are_holm_and_one_sequence_is_not_corrected(
    p_values: list[float], level: float
) -> None:
    alone = [bool(n) for n in held_in_sequence([[p] for p in p_values], level)]
    assert alone == [p <= level for p in holm(p_values)]
    (held,) = held_in_sequence([p_values], level)
    assert all(p <= level for p in p_values[:held])
    assert held == len(p_values) or p_values[held] > level


def test_nothing_asked_is_nothing_claimed() -> None:
    assert holm([]) == [] == held_in_sequence([], 0.05)
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


def test_an_onset_is_too_low_in_at_most_one_sweep_in_twenty() -> None:
    """Levels from the highest down: two pass by far, the third lies at the boundary."""
    truth = np.broadcast_to([5.0, 5.0, 0.0, -1.0, -3.0], (CHECKPOINTS, 5)).copy()
    measured = p_values(truth, 0.3).tolist()
    alone = share([held_in_sequence(sweep[:1], LEVEL)[0] > 2 for sweep in measured])
    assert LEVEL / 2 < alone <= MOST  # of one onset: the whole level, however many levels there are
    assert share([max(held_in_sequence(sweep, LEVEL)) > 2 for sweep in measured]) <= MOST
    found = [min(held_in_sequence(sweep, LEVEL)) for sweep in measured]
    assert share([n >= 2 for n in found]) > 0.9  # and the true onset is found
