"""Copies of a candidate are one choice; two choices that tie are not: decided in fractions."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from acpc.contract import Objective
from acpc_server.numerics import PoolCost
from acpc_server.numerics.cost_bounds import (
    PoolBounds,
    choice_gap,
    elite_certificate,
    elite_indices,
    pool_bounds,
    top1_certificate,
)
from acpc_server.numerics.updates import kept_certificate, softmax_update
from hypothesis import assume, given
from hypothesis import strategies as st

# In one dimension r, p and q are rational, so that every bound is exact.
COORDINATES = st.integers(-6, 6)
SCALES = st.sampled_from([1.0, 0.125, 2.0**-500, 2.0**400])


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], float]:
    """The choice of each candidate, clean and moved endpoints of each choice, and a scale."""
    moved = st.tuples(COORDINATES, st.integers(-1, 1)).map(lambda one: (8 * one[0], sum(one)))
    ends = draw(st.lists(moved, min_size=1, max_size=5))
    places = draw(st.lists(st.integers(0, len(ends) - 1), min_size=2, max_size=9))
    return places, [(x, x + (y - x // 8)) for x, y in ends], draw(SCALES)


def bounded(places: list[int], ends: list[tuple[int, int]], scale: float) -> PoolBounds:
    clean, perturbed = (
        torch.tensor([[ends[place][side] * scale] for place in places], dtype=torch.float64)
        for side in (0, 1)
    )
    choices = torch.tensor([places.index(place) for place in places])
    found = pool_bounds(clean, perturbed[None], torch.zeros(1, dtype=torch.float64))
    return replace(found, choices=choices)


def exact_margin(
    places: list[int], ends: list[tuple[int, int]], elites: list[int]
) -> Fraction | float:
    costs = [Fraction(ends[place][0]) ** 2 for place in places]
    bounds = [Fraction(abs(x - y) * (abs(x) + abs(y))) for x, y in (ends[p] for p in places)]
    outside = [j for j in range(len(places)) if j not in elites]
    return min(
        (
            costs[j] - costs[i] - bounds[j] - bounds[i]
            for i in elites
            for j in outside
            if places[i] != places[j]
        ),
        default=math.inf,
    )


@given(pools(), st.data())
def test_certificates_are_of_choices(
    pool: tuple[list[int], list[tuple[int, int]], float], data: st.DataObject
) -> None:
    """Certified where every pair of choices is apart, and then the view takes the same multiset."""
    places, ends, scale = pool
    bounds = bounded(*pool)
    count = data.draw(st.integers(1, len(places) - 1))
    for found, k in ((top1_certificate(bounds), 1), (elite_certificate(bounds, count), count)):
        elites = elite_indices(bounds.clean_costs, k).tolist()
        margin, certified = exact_margin(places, ends, elites), bool(found.certified)
        assert certified == (margin > 0)
        if margin == math.inf:
            assert found.margin == math.inf
        elif certified and scale > 1e-9:
            assert Fraction(found.margin.item()) <= margin * Fraction(scale) ** 2
        if certified:
            seen = sorted(range(len(places)), key=lambda j: abs(ends[places[j]][1]))[:k]
            assert sorted(places[j] for j in seen) == sorted(places[j] for j in elites)
    kept = data.draw(st.integers(1, count))
    both = elite_certificate(bounds, count).certified & elite_certificate(bounds, kept).certified
    assert kept_certificate(bounds, count, kept).certified == both


@pytest.mark.parametrize("far", [1.0, 1e200, 1e308])
def test_a_single_choice_is_certified_whatever_overflows(far: float) -> None:
    clean = torch.full((1, 2), far, dtype=torch.float64)
    alone = pool_bounds(clean, -clean[None], torch.zeros(2, dtype=torch.float64))
    copies = pool_bounds(clean.expand(64, 2), -clean.expand(1, 64, 2), clean[0] / 2)
    copies = replace(copies, choices=torch.zeros(64, dtype=torch.int64))
    found = [top1_certificate(alone), top1_certificate(copies), elite_certificate(copies, 8)]
    for certificate in found:
        assert certificate.certified.all()
        assert (certificate.margin == math.inf).all()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_alone_feasible_is_certified_whatever_its_bound(place: int) -> None:
    """An infeasible candidate costs infinity, so no view can make it the winner."""
    rivals = sorted({0, 1, 2} - {place})
    actions = torch.arange(3.0).reshape(3, 1, 1)
    cost = PoolCost(Objective(), 2, actions, endpoint_tolerance=1e200, infeasible=rivals)
    clean = torch.arange(6.0).reshape(3, 1, 2)
    bounds = cost.bounds(clean, clean[None] + 1, torch.zeros(2))
    assert torch.isinf(bounds.bounds[0, place])
    assert top1_certificate(bounds).margin.item() == math.inf
    assert not elite_certificate(bounds, 2).certified, "two infeasible choices tie"


@given(pools(), st.data())
def test_infeasible_elites_are_certified_where_they_are_copies(
    pool: tuple[list[int], list[tuple[int, int]], float], data: st.DataObject
) -> None:
    """As fractions decide it, infeasible candidates costing infinity; the multiset then stays."""
    places, ends, scale = pool
    barred = data.draw(st.sets(st.sampled_from(sorted(set(places))), max_size=2))
    rows = [j for j, place in enumerate(places) if place in barred]
    assume(len(rows) < len(places))
    bounds = bounded(places, ends, scale)
    infinite = {
        name: getattr(bounds, name).index_fill(-1, torch.tensor(rows, dtype=torch.int64), math.inf)
        for name in ("clean_costs", "perturbed_costs", "lower", "upper")
    }
    bounds = replace(bounds, **infinite)
    count = data.draw(st.integers(1, len(places) - 1))
    elites = elite_indices(bounds.clean_costs, count).tolist()
    feasible = [j for j in range(len(places)) if j not in rows]
    found = elite_certificate(bounds, count)
    if count > len(feasible):
        assert bool(found.certified) == (len(barred) == 1)
        assert found.margin.item() == (math.inf if found.certified else -math.inf)
    else:
        inner = [feasible.index(j) for j in elites]
        margin = exact_margin([places[j] for j in feasible], ends, inner)
        assert bool(found.certified) == (margin > 0)
    if found.certified:
        costs = [math.inf if j in rows else abs(ends[p][1]) for j, p in enumerate(places)]
        seen = sorted(range(len(places)), key=costs.__getitem__)[:count]
        assert sorted(places[j] for j in seen) == sorted(places[j] for j in elites)


@given(pools())
def test_a_softmax_mean_counts_copies(
    pool: tuple[list[int], list[tuple[int, int]], float],
) -> None:
    """Its exact mean lies in the interval, the same with the elites that it may be taken of."""
    places, ends, _ = pool
    bounds, count = bounded(places, ends, 1.0), len(places) - 1
    actions = torch.tensor([[[float(place)]] for place in places])
    elites = elite_indices(bounds.clean_costs, count)
    for chosen in (None, elites):
        update = softmax_update(bounds, actions, 50.0, chosen)
        rows = elite_indices(
            bounds.perturbed_costs[0], count if chosen is not None else len(places)
        )
        weights = np.exp(-bounds.perturbed_costs[0, rows].numpy() / 50.0)
        mean = (weights * actions[rows].numpy().ravel()).sum() / weights.sum()
        assert update.lower.item() - 1e-9 <= mean <= update.upper.item() + 1e-9


def test_gaps_of_costs_are_between_choices() -> None:
    costs = torch.tensor([3.0, 1.0, 1.0, 2.0, 2.0], dtype=torch.float64)
    choices = torch.tensor([0, 1, 1, 3, 3])
    gaps = [choice_gap(costs, costs, elite_indices(costs, k), choices).item() for k in (1, 2, 3, 4)]
    assert gaps == [1.0, 1.0, 1.0, 1.0]
    plain = choice_gap(costs, costs, elite_indices(costs, 3)).item()
    assert plain == 0.0
