"""Corrections for many statements, against brute force."""

import itertools
from collections.abc import Callable, Sequence

import pytest
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
