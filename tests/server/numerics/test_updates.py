"""Planners' updates: CEM as loops, MPPI's mean and iCEM's elites as properties."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.cost_bounds import (
    PoolBounds,
    elite_certificate,
    elite_indices,
    pool_bounds,
)
from acpc_server.numerics.objectives import Objective, PoolCost
from acpc_server.numerics.updates import (
    fit_proposal,
    kept_certificate,
    pool_normals,
    softmax_update,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor


def pools(seed: int, size: float, count: int = 8) -> tuple[PoolBounds, Tensor]:
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(count, 3))
    perturbed = clean + size * rng.normal(size=(3, count, 3))
    bounds = pool_bounds(*(torch.from_numpy(p) for p in (clean, perturbed, rng.normal(size=3))))
    return bounds, torch.from_numpy(rng.normal(size=(count, 2, 2)).astype(np.float32))


def mean_of(costs: Tensor, candidates: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(-(costs - costs.min()) / temperature, dim=0)
    return torch.einsum("j,jhw->hw", weights, candidates.double()), weights


SEEDS, SIZES = st.integers(0, 2**32), st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 3.0])
TEMPERATURES = st.sampled_from([1e-6, 0.05, 1.0, 100.0])


@given(SEEDS, SIZES, TEMPERATURES)
def test_no_costs_within_their_bounds_move_the_mean_further(
    seed: int, size: float, temperature: float
) -> None:
    """Prop. softmax: the views' own costs, and adversarial ones."""
    bounds, candidates = pools(seed, size)
    found = softmax_update(bounds, candidates, temperature)
    clean, weights = mean_of(bounds.clean_costs, candidates, temperature)
    torch.testing.assert_close(found.mean, clean)
    if size == 0:  # no room
        assert (found.total_variation == 0).all()
        assert (found.displacement < 1e-12 * (1 + clean.abs().max())).all()
    signs = torch.randn(5, 8, generator=torch.Generator().manual_seed(seed % 1000)).sign().double()
    for view in range(3):
        steps = [bounds.perturbed_costs[view]]
        steps += [bounds.clean_costs + sign * bounds.bounds[view] for sign in signs]
        actions = candidates.double()
        for at in ((0, 0), (1, 1)):  # all above a threshold cheaper, all others dearer
            above = torch.where(actions[:, *at] > found.upper[view][at], -1.0, 1.0)
            steps.append(bounds.clean_costs + above * bounds.bounds[view])
        for costs in steps:
            moved, changed = mean_of(costs, candidates, temperature)
            room = 1e-9 * (1 + moved.abs())
            assert (moved >= found.lower[view] - room).all()
            assert (moved <= found.upper[view] + room).all()
            assert ((moved - found.mean).abs().max() <= found.displacement[view] + 1e-9).all()
            variation = 0.5 * (changed - weights).abs().sum()
            assert variation <= found.total_variation[view] + 1e-9
        reach = found.total_variation[view] * (actions.amax(dim=0) - actions.amin(dim=0))
        own, _ = mean_of(bounds.perturbed_costs[view], candidates, temperature)
        assert ((own - clean).abs() <= reach + 1e-9).all()


def test_the_interval_is_attained() -> None:
    """Two candidates: the worst costs put the mean on the end of the interval."""
    ends = torch.tensor([[1.0], [1.5]], dtype=torch.float64)
    bounds = pool_bounds(ends, ends + 0.25, torch.zeros(1, dtype=torch.float64))
    candidates = torch.tensor([[[0.0]], [[1.0]]])
    found = softmax_update(bounds, candidates, 0.7)
    (b,) = bounds.bounds[None]
    worst = (bounds.clean_costs[1] - b[1] - bounds.clean_costs[0] - b[0]) / 0.7
    assert found.upper.item() == pytest.approx(1 / (1 + math.exp(worst)), rel=1e-9)
    # Prop. softmax, its first half: the range of the actions times tanh(e / 2 lambda).
    change = bounds.bounds.max().item() / 0.7
    assert found.total_variation.item() == pytest.approx(math.tanh(change / 2), rel=1e-9)
    hot = softmax_update(bounds, candidates, 1.7e308)
    assert 0 < hot.total_variation.item() < 1e-300, "what underflows is not nothing"


@pytest.mark.parametrize("size", [0.1, 3.0])
def test_an_infeasible_candidate_leaves_the_mean_and_its_interval_alone(size: float) -> None:
    rng = np.random.default_rng(5)
    clean = torch.from_numpy(rng.normal(size=(6, 1, 3)))
    moved = clean + size * torch.from_numpy(rng.normal(size=(2, 6, 1, 3)))
    actions = torch.from_numpy(rng.normal(size=(6, 2, 2)).astype(np.float32))
    actions[4] = 1e3
    found, wanted = (
        softmax_update(
            PoolCost(Objective(), 1, torch.zeros(len(rows), 1, 2), infeasible=out).bounds(
                clean[rows], moved[:, rows], torch.zeros(3, dtype=torch.float64)
            ),
            actions[rows],
            0.5,
        )
        for rows, out in (([0, 1, 2, 3, 4, 5], [4]), ([0, 1, 2, 3, 5], []))
    )
    for name in ("mean", "lower", "upper", "displacement", "total_variation"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name))


@given(SEEDS, SIZES, st.integers(1, 6))
def test_over_elites_only_where_they_are_certified(seed: int, size: float, count: int) -> None:
    """MPPI with topk: without the certificate of the elite set, any feasible action may result."""
    bounds, candidates = pools(seed, size)
    elites = elite_indices(bounds.clean_costs, count)
    found = softmax_update(bounds, candidates, 1.0, elites)
    certified = elite_certificate(bounds, count).certified
    actions = candidates.double()
    assert (found.total_variation[~certified] == 1).all()
    assert (found.upper[~certified] == actions.amax(dim=0)).all()
    for view in certified.nonzero()[:, 0].tolist():
        seen = elite_indices(bounds.perturbed_costs[view], count)
        moved, _ = mean_of(bounds.perturbed_costs[view][seen], candidates[seen], 1.0)
        assert (moved >= found.lower[view] - 1e-9).all()
        assert (moved <= found.upper[view] + 1e-9).all()


def test_an_elite_set_may_stay_where_the_kept_ones_change() -> None:
    """Why iCEM needs more than CEM: its next pool differs although the elite set does not."""
    clean = torch.tensor([[1.0], [1.01], [9.0]], dtype=torch.float64)
    moved = torch.tensor([[[1.02], [1.0], [9.0]]], dtype=torch.float64)
    bounds = pool_bounds(clean, moved, torch.zeros(1, dtype=torch.float64))
    assert elite_certificate(bounds, 2).certified.all()
    assert not kept_certificate(bounds, 2, 1).certified.any()
    assert bounds.perturbed_costs.argmin() != bounds.clean_costs.argmin()


SHAPE = {"candidates": 6, "horizon": 3, "width": 2}
PINNED = [-0.06592141836881638, 1.2326773405075073, 0.6676416993141174]


def test_normals_depend_on_seed_and_iteration_alone() -> None:
    """And are pinned: common random numbers must not change with a release."""
    pinned = pool_normals(1, 0, candidates=1, horizon=1, width=3).flatten().tolist()
    assert pinned == pytest.approx(PINNED, abs=1e-7)
    first = pool_normals(7, 2, **SHAPE)
    assert torch.equal(first, pool_normals(7, 2, **SHAPE))
    longer = pool_normals(7, 2, candidates=9, horizon=3, width=2)
    assert torch.equal(longer[:6], first)
    others = [pool_normals(s, t, **SHAPE) for s, t in ((8, 2), (7, 3), (2, 7))]
    assert not any(torch.equal(first, other) for other in others)


@given(st.integers(0, 2**32))
def test_the_fit_does_not_depend_on_the_order_of_the_elites(seed: int) -> None:
    """To the last bit, as Cor. adaptive-cem-alignment needs."""
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randn(12, 5, 4, generator=generator)
    elites = torch.randperm(12, generator=generator)[:7]
    shuffled = elites[torch.randperm(7, generator=generator)]
    ours, theirs = fit_proposal(pool, elites), fit_proposal(pool, shuffled)
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.std, theirs.std)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kept_certificate(pools(0, 0.1)[0], 3, 0), "kept_elites"),
        (lambda: kept_certificate(pools(0, 0.1)[0], 3, 4), "kept_elites"),
        (lambda: fit_proposal(torch.zeros(3, 1, 1), torch.tensor([0])), "elites: are 1"),
        (lambda: pool_normals(-1, 0, **SHAPE), "seed: is"),
        (lambda: pool_normals(2**64, 0, **SHAPE), "seed: is"),
        *(
            (lambda heat=heat: softmax_update(*pools(0, 0.1), heat), "temperature")
            for heat in (0.0, -1.0, math.inf, math.nan)
        ),
    ],
)
def test_what_no_update_can_be_made_of_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call()
