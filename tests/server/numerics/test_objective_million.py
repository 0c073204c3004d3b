"""A million pools under costs of every kind: not one false certificate, and few true ones lost.

A pool here is a clean pool under one view, as in ``test_certificate_million``. Most are judged in
wider floating point with a proven error, what that leaves open in fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from acpc.contract import DistanceTerm, Norm, Objective
from acpc_server.numerics.cost_bounds import elite_certificate, elite_indices, excess_cost
from acpc_server.numerics.objectives import ObjectiveBounds, PoolCost
from numpy.typing import NDArray
from objective_certificate import Asked, exact_added, exact_margin, judge

Array = NDArray[np.float64]
Pools = tuple[Array, Array, Array]  # clean (n, J, H, d), perturbed (n, views, J, H, d), goal (n, d)

VIEWS, CANDIDATES, HORIZON, WIDTH, ELITES = 256, 5, 2, 3, 2
L1, STEPS, COORDINATES = Norm.L1, (0.25, 0.75), (0.0, 0.5, 3.0)

OBJECTIVES: dict[str, tuple[Objective, bool]] = {
    "l1": (Objective((DistanceTerm(L1, squared=False),)), False),
    "l1-squared-mean": (Objective((DistanceTerm(L1, coordinate_weights=COORDINATES),)), True),
    "l2": (Objective((DistanceTerm(squared=False, step_weights=STEPS),)), False),
    "l2-mean": (Objective((DistanceTerm(squared=False, coordinate_weights=COORDINATES),)), True),
    "squares-of-steps": (Objective((DistanceTerm(step_weights=STEPS, weight=0.1),)), False),
    "weighted-squares": (Objective((DistanceTerm(coordinate_weights=COORDINATES),)), False),
    "control": (Objective(control_weights=(0.1, 0.0)), False),
    "many": (
        Objective(
            (DistanceTerm(), DistanceTerm(L1, False, 0.3, STEPS), DistanceTerm(weight=1e-3)),
            control_weights=(0.01,),
        ),
        True,
    ),
}


def latents(rng: np.random.Generator, rows: int) -> tuple[Array, Array]:
    return rng.normal(size=(rows, CANDIDATES, HORIZON, WIDTH)), rng.normal(size=(rows, WIDTH))


def sizes(rng: np.random.Generator, rows: int, low: float, high: float) -> Array:
    return 10.0 ** rng.uniform(low, high, size=(rows, VIEWS, 1, 1, 1))


def float32(values: Array) -> Array:
    return values.astype(np.float32).astype(np.float64)


def shifts(rng: np.random.Generator, clean: Array, low: float, high: float) -> Array:
    noise = rng.normal(size=(len(clean), VIEWS, *clean.shape[1:]))
    return clean[:, None] + sizes(rng, len(clean), low, high) * noise


def ordinary(rng: np.random.Generator, rows: int, _: Asked) -> Pools:
    """float32 latents, perturbations from invisible to large."""
    clean, goal = latents(rng, rows)
    return float32(clean), float32(shifts(rng, clean, -9, 1)), float32(goal)


def grid(rng: np.random.Generator, rows: int, _: Asked) -> Pools:
    """Small integers: equal and mirrored candidates, margins that are exactly zero."""
    clean = rng.integers(-4, 5, size=(rows, CANDIDATES, HORIZON, WIDTH)).astype(float)
    moved = rng.random((rows, VIEWS, CANDIDATES, 1, 1)) < 0.2
    steps = rng.integers(-1, 2, size=(rows, VIEWS, *clean.shape[1:]))
    return clean, clean[:, None] + moved * steps, np.zeros((rows, WIDTH))


def near_tie(rng: np.random.Generator, rows: int, asked: Asked) -> Pools:
    """Perturbations scaled until the margin is zero, then moved by a few roundings."""
    clean, goal = latents(rng, rows)
    direction = rng.normal(size=clean.shape)
    low, high = np.zeros(rows), np.full(rows, 8.0)
    for _ in range(66):
        middle = (low + high) / 2
        moved = clean + middle[:, None, None, None] * direction
        judged = judge(clean, moved[:, None], goal, asked)
        elites = np.argsort(judged.costs, axis=1, kind="stable")[:, :ELITES]
        positive = judged.margins(elites)[:, 0] > 0
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    nudges = rng.integers(-40, 41, size=(rows, VIEWS, 1, 1, 1)) * sizes(rng, rows, -17, -13)
    scale = low[:, None, None, None, None] * (1 + nudges)
    return clean, clean[:, None] + scale * direction[:, None], goal


def cancelling(rng: np.random.Generator, rows: int, _: Asked) -> Pools:
    """Endpoints and goal far from the origin, close to each other."""
    near, goal = latents(rng, rows)
    centre = 1e6 * rng.normal(size=(rows, WIDTH))
    clean = centre[:, None, None] + 1e-6 * near
    return clean, shifts(rng, clean, -18, -6), centre + 1e-6 * goal


def equal(rng: np.random.Generator, rows: int, _: Asked) -> Pools:
    """Some candidates coincide, some differ by one rounding, under both histories."""
    clean, goal = latents(rng, rows)
    clean[:, 1] = clean[:, 0]
    clean[:, 2] = np.nextafter(clean[:, 0], np.inf)
    perturbed = shifts(rng, clean, -17, -1)
    perturbed[:, : VIEWS // 2] = clean[:, None]
    perturbed[:, VIEWS // 2 :, 1] = perturbed[:, VIEWS // 2 :, 0]
    return clean, perturbed, goal


def scaled(rng: np.random.Generator, rows: int, asked: Asked) -> Pools:
    """Near ties at any power of two, until squares underflow or overflow."""
    clean, perturbed, goal = near_tie(rng, rows, asked)
    factor = 2.0 ** rng.integers(-560, 505, size=rows).astype(float)
    return (
        clean * factor[:, None, None, None],
        perturbed * factor[:, None, None, None, None],
        goal * factor[:, None],
    )


FAMILIES: list[Callable[[np.random.Generator, int, Asked], Pools]] = [
    ordinary,
    grid,
    near_tie,
    cancelling,
    equal,
    scaled,
]


def asked_of(
    name: str, rng: np.random.Generator, rows: int
) -> tuple[Asked, NDArray[np.float32], NDArray[np.float32]]:
    """What an objective asks of some pools, with their candidates and offsets in float32."""
    objective, mean = OBJECTIVES[name]
    shape = (rows, CANDIDATES, HORIZON, 2)
    candidates = rng.normal(size=shape).astype(np.float32)
    offsets = rng.normal(size=shape[:2]).astype(np.float32) if name == "many" else None
    offsets = np.zeros(shape[:2], np.float32) if offsets is None else offsets
    infeasible = np.zeros(shape[:2], bool)
    if name == "many":
        infeasible[np.arange(rows), rng.integers(CANDIDATES, size=rows)] = rng.random(rows) < 0.5
    weights = np.array(objective.control_weights or (0.0,))
    added = (candidates.astype(np.longdouble) ** 2 * weights).sum(axis=(2, 3)) + offsets
    return Asked(objective, mean, added, infeasible), candidates, offsets


def check_reported(bounds: ObjectiveBounds) -> None:
    """Reported bounds hold for the reported costs, to the last bit."""
    excess, feasible = excess_cost(bounds), torch.isfinite(bounds.clean_costs)
    moved = (bounds.perturbed_costs - bounds.clean_costs).abs()[..., feasible]
    assert (moved <= bounds.bounds[..., feasible]).all()
    assert (excess.excess >= 0).all()
    assert (excess.excess <= excess.bound).all()


@pytest.mark.parametrize("rows", [2, pytest.param(88, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_certificate_of_any_cost_is_wrong(
    name: str, make: Callable[[np.random.Generator, int, Asked], Pools], rows: int
) -> None:
    """Prop. objective certificates holds wherever the server says so; the slow tier has a million.

    Reported margins never exceed the exact ones, reported bounds hold for the reported costs, and
    what is lost had a margin of rounding size.
    """
    rng = np.random.default_rng(7)
    asked, candidates, offsets = asked_of(name, rng, rows)
    clean, perturbed, goal = make(rng, rows, asked)
    judged = judge(clean, perturbed, goal, asked)
    certified, margin = np.zeros((rows, VIEWS), bool), np.zeros((rows, VIEWS))
    elites = np.zeros((rows, ELITES), np.int64)
    for row in range(rows):
        cost = PoolCost(
            asked.objective,
            WIDTH,
            torch.from_numpy(candidates[row]),
            reduction="mean" if asked.mean else "sum",
            offsets=torch.from_numpy(offsets[row]),
            infeasible=np.flatnonzero(asked.infeasible[row]).tolist(),
        )
        bounds = cost.bounds(*(torch.from_numpy(part[row]) for part in (clean, perturbed, goal)))
        certificate = elite_certificate(bounds, ELITES)
        chosen = elite_indices(bounds.clean_costs, ELITES)
        elites[row], margin[row] = chosen.numpy(), certificate.margin.numpy()
        certified[row] = certificate.certified.numpy()
        if torch.isfinite(bounds.bounds).all():
            check_reported(bounds)
            seen = elite_indices(bounds.perturbed_costs[certificate.certified], ELITES)
            assert torch.equal(seen.sort().values, chosen.sort().values.expand_as(seen))
    exact = judged.margins(elites)
    assert np.array_equal(certified, margin > 0)
    proven = (exact > judged.error) & (margin <= exact - judged.error)
    for row, view in zip(*np.nonzero(certified & ~proven), strict=True):
        added = exact_added(asked.objective, candidates[row], offsets[row])
        one = replace(asked, added=np.array([added]), infeasible=asked.infeasible[[row]])
        chosen = {*elites[row].tolist()}
        ends = exact_margin(clean[row], perturbed[row, view], goal[row], one, chosen)
        assert ends[0] > 0
        assert margin[row, view] <= ends[1]
    true = exact > judged.error
    lost = true & ~certified
    print(f"{name}, {make.__name__}: {lost.sum()} of {true.sum()} true ones lost")
    if make is not scaled:
        scale = judged.largest + np.abs(asked.added).max(axis=-1)[:, None]
        assert (exact[lost] < 1e-12 * scale[lost]).all()
    if make in {ordinary, grid} and rows > 2:
        assert certified.sum() > 0.02 * certified.size
        assert lost.sum() <= 1e-3 * true.sum()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_both_judges_agree(name: str) -> None:
    """The wide judge's margins lie within its error of the exact ones."""
    rng = np.random.default_rng(3)
    asked, candidates, offsets = asked_of(name, rng, 4)
    clean, perturbed, goal = ordinary(rng, 4, asked)
    judged = judge(clean, perturbed, goal, asked)
    elites = np.argsort(judged.costs, axis=1)[:, :ELITES]
    margins = judged.margins(elites)
    for row in range(4):
        added = exact_added(asked.objective, candidates[row], offsets[row])
        one = replace(asked, added=np.array([added]), infeasible=asked.infeasible[[row]])
        for view in (0, 1):
            chosen = {*elites[row].tolist()}
            ends = exact_margin(clean[row], perturbed[row, view], goal[row], one, chosen)
            found, error = (
                Fraction(*number[row, view].as_integer_ratio())
                for number in (margins, judged.error)
            )
            assert found - error <= ends[1]
            assert ends[0] <= found + error
