"""Certificates and softmax bounds where numbers vanish or overflow, against exact arithmetic."""

import math
from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import pytest
import torch
from acpc.contract import DistanceTerm, Norm, Objective
from acpc_server.numerics import consistency
from acpc_server.numerics.cost_bounds import (
    PoolBounds,
    chained_bounds,
    elite_certificate,
    elite_indices,
    excess_cost,
    pool_bounds,
)
from acpc_server.numerics.objectives import (
    ObjectiveBounds,
    PoolCost,
    chained_objective_bounds,
)
from acpc_server.numerics.updates import softmax_update
from objective_certificate import Asked, exact_added, exact_margin
from torch import Tensor

EXACT = Context(prec=60, Emin=-(10**9), Emax=10**9)
LEAST, MOST = 1e-30, 1e30
VIEWS, CANDIDATES, HORIZON, WIDTH = 8, 4, 2, 2
# Objectives, whether the mean, and the powers of two of latents where something of them vanishes.
EDGES = {
    "the mean of small weights": (
        DistanceTerm(coordinate_weights=(LEAST, LEAST)), True, (-500, -470)),
    "l1 of small weights": (
        DistanceTerm(Norm.L1, False, 1.0, (), (LEAST, LEAST)), True, (-1000, -960)),
    "the square of an l1 distance": (
        DistanceTerm(Norm.L1, weight=MOST, step_weights=(MOST, 1.0)), False, (-620, -500)),
    "a distance whose square overflows": (DistanceTerm(squared=False), False, (509, 513)),
    "a sum that overflows": (DistanceTerm(Norm.L1, squared=False), False, (1019, 1022)),
}  # fmt: skip


@pytest.mark.parametrize("edge", EDGES)
def test_no_margin_is_above_the_exact_one_where_numbers_vanish(edge: str) -> None:
    term, mean, (low, high) = EDGES[edge]
    objective, rng = Objective((term,)), np.random.default_rng(5)
    none = np.zeros((1, CANDIDATES), bool)
    still = torch.zeros(CANDIDATES, HORIZON, 1)
    added = np.array([exact_added(objective, still.numpy(), np.zeros(CANDIDATES, np.float32))])
    asked = Asked(objective, mean, added, none)
    for _ in range(40):
        size = 2.0 ** int(rng.integers(low, high + 1))
        shape = (CANDIDATES, HORIZON, WIDTH)
        clean = size * rng.uniform(-1, 1, shape)
        moved = rng.uniform(-1, 1, (VIEWS, *shape)) * 2.0 ** rng.integers(-40, 1, (VIEWS, 1, 1, 1))
        perturbed, goal = clean + 0.5 * size * moved, np.zeros(WIDTH)
        cost = PoolCost(objective, WIDTH, still, reduction="mean" if mean else "sum")
        bounds = cost.bounds(*map(torch.from_numpy, (clean, perturbed, goal)))
        certificate = elite_certificate(bounds, 2)
        chosen = {*elite_indices(bounds.clean_costs, 2).tolist()}
        for view in certificate.certified.nonzero()[:, 0].tolist():
            exact = exact_margin(clean, perturbed[view], (goal, goal), asked, chosen)
            assert exact[0] > 0
            assert float(certificate.margin[view]) <= exact[1]


def test_a_rival_whose_cost_overflows_is_not_an_infeasible_one() -> None:
    """It costs 1.4e154, and 0.5e154 under the view, where the elite costs 2e154."""
    clean = torch.tensor([[[1.0e154]], [[1.4e154]]], dtype=torch.float64)
    moved = torch.tensor([[[[2.0e154]], [[0.5e154]]]], dtype=torch.float64)
    cost = PoolCost(Objective((DistanceTerm(squared=False),)), 1, torch.zeros(2, 1, 1))
    bounds = cost.bounds(clean, moved, torch.zeros(1, dtype=torch.float64))
    assert not elite_certificate(bounds, 1).certified.any()
    found = softmax_update(bounds, torch.tensor([[[0.0]], [[1.0]]]), 1e154)
    assert (found.lower.item(), found.upper.item()) == (0.0, 1.0), "its weight is not nothing"


def exact_mean(
    costs: Sequence[float | Decimal], actions: list[float], temperature: float
) -> Decimal:
    scaled = [EXACT.divide(Decimal(cost), Decimal(temperature)) for cost in costs]
    weights = [EXACT.exp(EXACT.subtract(min(scaled), one)) for one in scaled]
    total, whole = Decimal(0), Decimal(0)
    for weight, action in zip(weights, actions, strict=True):
        total = EXACT.fma(weight, Decimal(action), total)
        whole = EXACT.add(whole, weight)
    return EXACT.divide(total, whole)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("ends", "temperature", "actions"),
    [
        ((40.0, 1.0), 1.0, (1e-20, 0.0)),  # the mean underflows
        ((40.0, 1.0), 5e-324, (1.0, -0.0)),  # the coldest
        ((2.0**496, 2.0**495), 1.7e308, (1.0, 0.0)),  # times the width it overflows
        ((2.0**-530, 2.0**-531), 2.0**-1060, (1.0, 0.0)),
        ((3.0, 3.0), 0.5, (1e-45, -3e38)),  # equal costs
        ((2.0,), 0.5, (-0.0,)),
    ],
)
def test_the_softmax_mean_of_extreme_numbers_lies_in_its_interval(
    ends: tuple[float, ...], temperature: float, actions: tuple[float, ...], sign: int
) -> None:
    latents = column(*ends).expand(-1, 4)
    goal = torch.zeros(4, dtype=torch.float64)
    bounds = pool_bounds(latents, latents[None], goal, reduction="mean")
    pool = (sign * torch.tensor(actions, dtype=torch.float32))[:, None, None]
    found = softmax_update(bounds, pool, temperature)
    exact = exact_mean([end**2 for end in ends], pool.flatten().double().tolist(), temperature)
    assert Decimal(found.lower.item()) <= exact <= Decimal(found.upper.item())
    assert found.total_variation.item() == 0


def test_a_pool_of_overflowing_costs_says_no_more_than_the_range() -> None:
    ends = column(1e200, 1e300)
    bounds = pool_bounds(ends, ends[None], torch.zeros(1, dtype=torch.float64))
    found = softmax_update(bounds, torch.tensor([[[-1.0]], [[2.0]]]), 1.0)
    assert (found.lower.item(), found.upper.item()) == (-1.0, 2.0)
    assert found.total_variation.item() == 1
    assert not math.isfinite(bounds.clean_costs.max())


@pytest.mark.parametrize("pools", [40, pytest.param(1500, marks=pytest.mark.nightly)])
def test_the_exact_softmax_mean_of_every_view_lies_in_its_interval(pools: int) -> None:
    """Pools of one to four candidates near ties, from the coldest temperatures to the hottest."""
    rng = np.random.default_rng(11)
    for _ in range(pools):
        count, size = int(rng.integers(1, 5)), 2.0 ** int(rng.choice([-530, -6, 0, 500]))
        ends = size * rng.integers(-3, 4, (count, 1)) * (1 + 2.0**-40 * rng.random((count, 1)))
        moved = ends + size * rng.normal(size=(2, count, 1)) * 2.0 ** rng.integers(-50, 1)
        heat = min(size * size * 2.0 ** float(rng.choice([-60, -10, 0, 10, 700])), 1.7e308)
        actions = rng.choice([0.0, -0.0, 1e-45, 1e-20, 1.0, 3e38], count) * rng.choice([-1, 1])
        pool = torch.from_numpy(actions.astype(np.float32))[:, None, None]
        goal = torch.zeros(1, dtype=torch.float64)
        bounds = pool_bounds(torch.from_numpy(ends), torch.from_numpy(moved), goal)
        elites = None
        if count > 1 and rng.random() < 0.5:
            elites = elite_indices(bounds.clean_costs, int(rng.integers(1, count)))
        found = softmax_update(bounds, pool, max(heat, 5e-324), elites)
        for view in (0, 1):
            squares = [EXACT.multiply(Decimal(end), Decimal(end)) for end in moved[view, :, 0]]
            chosen = range(count) if elites is None else np.argsort(squares)[: len(elites)]
            costs = [squares[j] for j in chosen]
            exact = exact_mean(costs, [pool[j].item() for j in chosen], max(heat, 5e-324))
            room = EXACT.multiply(EXACT.abs(exact), Decimal("1e-50"))
            assert Decimal(found.lower[view].item()) <= EXACT.add(exact, room)
            assert EXACT.subtract(exact, room) <= Decimal(found.upper[view].item())


def all_numbers(bounds: PoolBounds) -> list[Tensor]:
    acpc = bounds.displacements
    weights = torch.tensor([0.0, 1.0], dtype=torch.float64)
    if isinstance(bounds, ObjectiveBounds):
        chained = chained_objective_bounds(bounds, acpc, weights)
    else:
        chained = chained_bounds(bounds, acpc, 1.0)
    excess = excess_cost(bounds)
    own = [x for x in vars(bounds).values() if isinstance(x, Tensor)]
    return [*own, chained, excess.excess, excess.bound, elite_certificate(bounds, 1).margin]


@pytest.mark.parametrize("norm", [Norm.L2, Norm.L1])
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("size", [1e100, 1e153, 1e155, 1e200, 1e307])
def test_nothing_is_nan_where_costs_overflow(norm: Norm, squared: bool, size: float) -> None:
    """Bounds are then infinite, and certify nothing; coordinates and steps without weight too."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        ones = rng.choice([0.0, 1.0, 1e30], (2, WIDTH))
        ones[:, 0] = np.maximum(ones[:, 0], 1.0)
        steps, coordinates = (tuple(map(float, rng.permutation(one))) for one in ones)
        objective = Objective((DistanceTerm(norm, squared, 1.0, steps, coordinates),))
        shape = (CANDIDATES, HORIZON, WIDTH)
        clean = size * rng.choice([-1.0, -0.5, 0.0, 1e-200, 1.0], shape)
        moved = size * rng.choice([-1.0, 0.0, 0.5, 1.0], (VIEWS, *shape))
        moved[0] = clean
        x, y, goal = map(torch.from_numpy, (clean, moved, np.zeros(WIDTH)))
        tolerance = float(rng.choice([0.0, 1.0]))
        added = torch.from_numpy(rng.choice([-3e38, 0.0, 3e38], CANDIDATES).astype(np.float32))
        still = torch.zeros(CANDIDATES, HORIZON, 1)
        cost = PoolCost(
            objective, WIDTH, still, offsets=added, infeasible=(3,), endpoint_tolerance=tolerance
        )
        plain = pool_bounds(x[:, -1], y[..., -1, :], goal, endpoint_tolerance=tolerance)
        for bounds in (cost.bounds(x, y, goal), plain):
            assert not any(bool(found.isnan().any()) for found in all_numbers(bounds))
            assert bool((bounds.bounds >= 0).all())
        assert not bool(cost.costs(y, goal).isnan().any())
        last = torch.tensor([0.0, 1.0], dtype=torch.float64)
        radius = consistency.acpc(consistency.step_distances(x, y), last)
        assert not bool(radius.isnan().any())
