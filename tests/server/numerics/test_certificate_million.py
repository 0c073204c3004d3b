"""A million pools, random and adversarial: not one false certificate, and few true ones lost.

A pool here is a clean pool under one view. Most are judged in wider floating point with a proven
error; a certificate which that leaves open goes to the judge in exact integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from acpc_server.numerics.cost_bounds import (
    PoolBounds,
    elite_certificate,
    elite_indices,
    excess_cost,
    pool_bounds,
    top1_certificate,
)
from exact_certificate import exact_pools
from interval_certificate import judge
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pools = tuple[Array, Array, Array]  # clean (n, J, d), perturbed (n, views, J, d), goal (n, d)

VIEWS, CANDIDATES, ELITES = 64, 5, 2


def float32(values: Array) -> Array:
    return values.astype(np.float32).astype(np.float64)


def bfloat16(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def latents(rng: np.random.Generator, rows: int, width: int) -> tuple[Array, Array]:
    return rng.normal(size=(rows, CANDIDATES, width)), rng.normal(size=(rows, width))


def sizes(rng: np.random.Generator, rows: int, low: float, high: float) -> Array:
    return 10.0 ** rng.uniform(low, high, size=(rows, VIEWS, 1, 1))


def shifts(rng: np.random.Generator, clean: Array, low: float, high: float) -> Array:
    noise = rng.normal(size=(len(clean), VIEWS, *clean.shape[1:]))
    return clean[:, None] + sizes(rng, len(clean), low, high) * noise


def ordinary(rng: np.random.Generator, rows: int) -> Pools:
    """float32 latents, perturbations from invisible to large."""
    clean, goal = latents(rng, rows, 4)
    return float32(clean), float32(shifts(rng, clean, -9, 1)), float32(goal)


def coarse(rng: np.random.Generator, rows: int) -> Pools:
    """bfloat16 latents, where candidates and costs often coincide."""
    clean, goal = latents(rng, rows, 2)
    return bfloat16(clean), bfloat16(shifts(rng, bfloat16(clean), -4, 0)), bfloat16(goal)


def grid(rng: np.random.Generator, rows: int) -> Pools:
    """Small integers: equal and mirrored candidates, margins that are exactly zero."""
    clean = rng.integers(-4, 5, size=(rows, CANDIDATES, 2)).astype(float)
    moved = rng.random((rows, VIEWS, CANDIDATES, 1)) < 0.2
    steps = rng.integers(-1, 2, size=(rows, VIEWS, CANDIDATES, 2))
    return clean, clean[:, None] + moved * steps, np.zeros((rows, 2))


def float_margins(clean: Array, perturbed: Array, goal: Array) -> Array:
    """Elite margins (n,) in plain float64 of one view (n, J, d)."""
    p = np.linalg.norm(clean - goal[:, None], axis=-1)
    q = np.linalg.norm(perturbed - goal[:, None], axis=-1)
    b = np.linalg.norm(perturbed - clean, axis=-1) * (p + q)
    order = np.argsort(p, axis=-1)
    lower = np.take_along_axis(p**2 - b, order[:, ELITES:], axis=-1).min(axis=-1)
    return lower - np.take_along_axis(p**2 + b, order[:, :ELITES], axis=-1).max(axis=-1)


def near_tie(rng: np.random.Generator, rows: int) -> Pools:
    """Perturbations scaled until the margin is zero, then moved by a few roundings."""
    clean, goal = latents(rng, rows, 3)
    direction = rng.normal(size=clean.shape)
    low, high = np.zeros(rows), np.full(rows, 8.0)
    for _ in range(70):
        middle = (low + high) / 2
        positive = float_margins(clean, clean + middle[:, None, None] * direction, goal) > 0
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    nudges = rng.integers(-40, 41, size=(rows, VIEWS, 1, 1)) * sizes(rng, rows, -17, -13)
    scale = low[:, None, None, None] * (1 + nudges)
    return clean, clean[:, None] + scale * direction[:, None], goal


def ray(rng: np.random.Generator, rows: int) -> Pools:
    """On a ray from the goal the bound is attained: costs meet, the margin is zero or one ulp."""
    start = np.sort(rng.integers(1, 2**20, size=(rows, CANDIDATES)), axis=1).astype(float)
    start += np.arange(CANDIDATES)
    meeting = start.copy()
    meeting[:, :ELITES] = start[:, ELITES : ELITES + 1]
    perturbed = np.repeat(meeting[:, None], VIEWS, axis=1)
    nudged = rng.random(perturbed.shape) < 0.2
    towards = rng.choice([-np.inf, np.inf], size=perturbed.shape)
    perturbed = np.where(nudged, np.nextafter(perturbed, towards), perturbed)
    return start[..., None], perturbed[..., None], np.zeros((rows, 1))


def cancelling(rng: np.random.Generator, rows: int) -> Pools:
    """Endpoints and goal far from the origin, close to each other."""
    near, goal = latents(rng, rows, 4)
    centre = 1e6 * rng.normal(size=(rows, 4))
    clean = centre[:, None] + 1e-6 * near
    return clean, shifts(rng, clean, -18, -6), centre + 1e-6 * goal


def equal(rng: np.random.Generator, rows: int) -> Pools:
    """Some candidates coincide, some differ by one rounding, under both histories."""
    clean, goal = latents(rng, rows, 3)
    clean[:, 1] = clean[:, 0]
    clean[:, 2] = np.nextafter(clean[:, 0], np.inf)
    perturbed = shifts(rng, clean, -17, -1)
    perturbed[:, : VIEWS // 2] = clean[:, None]
    perturbed[:, VIEWS // 2 :, 1] = perturbed[:, VIEWS // 2 :, 0]
    return clean, perturbed, goal


def scaled(rng: np.random.Generator, rows: int) -> Pools:
    """Near ties at any power of two, until squares underflow or overflow."""
    clean, perturbed, goal = near_tie(rng, rows)
    factor = 2.0 ** rng.integers(-560, 505, size=rows).astype(float)
    return (
        clean * factor[:, None, None],
        perturbed * factor[:, None, None, None],
        goal * factor[:, None],
    )


FAMILIES: list[Callable[[np.random.Generator, int], Pools]] = [
    ordinary,
    coarse,
    grid,
    near_tie,
    ray,
    cancelling,
    equal,
    scaled,
]


def check_reported(bounds: PoolBounds) -> None:
    """Reported bounds hold for the reported costs, to the last bit."""
    excess = excess_cost(bounds)
    assert ((bounds.perturbed_costs - bounds.clean_costs).abs() <= bounds.bounds).all()
    assert (excess.excess >= 0).all()
    assert (excess.excess <= excess.bound).all()


def check_selected(bounds: PoolBounds, certified: torch.Tensor, elites: torch.Tensor) -> None:
    """Where certified, a planner that sorts the computed costs selects the same."""
    seen = elite_indices(bounds.perturbed_costs[certified], len(elites))
    assert torch.equal(seen.sort().values, elites.sort().values.expand_as(seen))


@pytest.mark.parametrize("rows", [32, pytest.param(2048, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_no_certificate_of_a_million_is_wrong(
    make: Callable[[np.random.Generator, int], Pools], rows: int
) -> None:
    """Prop. fixed-pool-certificates holds wherever the server says so; the slow tier has a million.

    Prints how many true certificates are lost; ``pytest -rP`` shows it.
    """
    clean, perturbed, goal = make(np.random.default_rng(11), rows)
    judged = judge(clean, perturbed, goal)
    for count in (1, ELITES):
        elites = np.empty((rows, count), np.int64)
        certified = np.empty((rows, VIEWS), bool)
        margin = np.empty((rows, VIEWS))
        for row in range(rows):
            bounds = pool_bounds(
                *(torch.from_numpy(part[row]) for part in (clean, perturbed, goal))
            )
            certificate = (
                elite_certificate(bounds, count) if count > 1 else top1_certificate(bounds)
            )
            chosen = elite_indices(bounds.clean_costs, count)
            elites[row], certified[row] = chosen.numpy(), certificate.certified.numpy()
            margin[row] = certificate.margin.numpy()
            if torch.isfinite(bounds.bounds).all():
                check_reported(bounds)
                check_selected(bounds, certificate.certified, chosen)
        exact = judged.margins(elites)
        assert np.array_equal(certified, margin > 0)
        # Proven positive, and no larger than the exact margin; else the exact judge decides.
        proven = (exact > judged.error) & (margin <= exact - judged.error)
        for row, view in zip(*np.nonzero(certified & ~proven), strict=True):
            (pool,) = exact_pools(clean[row], perturbed[row, view][None], goal[row])
            low, high = pool.margin(set(elites[row].tolist()))
            assert low > 0
            assert margin[row, view] <= high
            assert pool.selection_survives(count)
        true = exact > judged.error
        lost = true & ~certified
        print(f"{make.__name__}, k = {count}: {lost.sum()} of {true.sum()} true ones lost")
        if make is not scaled:
            assert (exact[lost] < 1e-12 * judged.largest[lost]).all()
        if make not in {grid, ray, equal}:
            assert certified.any() and not certified.all(), "both answers, or it proves nothing"
        if make in {ordinary, coarse, grid}:
            assert certified.sum() > 0.05 * certified.size
            assert lost.sum() <= 1e-4 * true.sum()


@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_bounds_of_each_candidate_are_on_the_safe_side(
    make: Callable[[np.random.Generator, int], Pools],
) -> None:
    """Exactly lower <= C - b and C + b <= upper, as the rounding analysis claims."""
    clean, perturbed, goal = make(np.random.default_rng(3), 4)
    for row in range(len(clean)):
        bounds = pool_bounds(*(torch.from_numpy(part[row]) for part in (clean, perturbed, goal)))
        for view, pool in enumerate(exact_pools(clean[row], perturbed[row], goal[row])):
            sides = zip(bounds.lower[view].tolist(), bounds.upper[view].tolist(), strict=True)
            for candidate, (lower, upper) in enumerate(sides):
                if np.isfinite(lower) and np.isfinite(upper):
                    assert pool.encloses(candidate, lower, upper)
