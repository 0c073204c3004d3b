"""A certificate is never wrong: judged in exact integer arithmetic on hostile pools.

For every pool and view, a certificate given means that the exact margin is positive and that the
exact selection survives; the reported margin never exceeds the exact one. Certificates may be lost
only where the exact margin is within rounding of zero.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from acpc_server.numerics.cost_bounds import (
    elite_certificate,
    elite_indices,
    pool_bounds,
    top1_certificate,
)
from exact_certificate import ExactPool, exact_pools
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pool = tuple[Array, Array, Array]  # clean (J, d), perturbed (views, J, d), goal (d,)

POOLS, VIEWS, CANDIDATES, ELITES = 50, 12, 6, 2


def ordinary(rng: np.random.Generator) -> Pool:
    """float32 latents, perturbations from invisible to large."""
    width = int(rng.choice([1, 2, 3, 8, 48]))
    clean = rng.normal(size=(CANDIDATES, width)).astype(np.float32)
    size = 10.0 ** rng.uniform(-9, 1, size=(VIEWS, 1, 1))
    perturbed = (clean + size * rng.normal(size=(VIEWS, *clean.shape))).astype(np.float32)
    return clean.astype(float), perturbed.astype(float), rng.normal(size=width)


def float_margin(clean: Array, perturbed: Array, goal: Array, count: int) -> float:
    p = np.linalg.norm(clean - goal, axis=1)
    b = np.linalg.norm(perturbed - clean, axis=1) * (p + np.linalg.norm(perturbed - goal, axis=1))
    order = np.argsort(p)
    lower, upper = p**2 - b, p**2 + b
    return float(lower[order[count:]].min() - upper[order[:count]].max())


def near_tie(rng: np.random.Generator) -> Pool:
    """Perturbations scaled until the margin is zero, then moved by a few roundings."""
    clean, perturbed, goal = ordinary(rng)
    direction = perturbed[0] - clean + rng.normal(size=clean.shape) * 1e-3
    count = int(rng.choice([1, ELITES]))
    low, high = 0.0, 1.0
    while float_margin(clean, clean + high * direction, goal, count) > 0:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if float_margin(clean, clean + middle * direction, goal, count) > 0:
            low = middle
        else:
            high = middle
    nudges = 1 + rng.integers(-40, 41, size=(VIEWS, 1, 1)) * 10.0 ** rng.uniform(
        -17, -13, size=(VIEWS, 1, 1)
    )
    return clean, clean + low * nudges * direction, goal


def exact_tie(rng: np.random.Generator) -> Pool:
    """On a ray from the goal the bound is attained: all costs meet at one point, margin zero."""
    start = np.sort(rng.integers(1, 2**20, size=CANDIDATES)).astype(float)
    start += np.arange(CANDIDATES)
    meeting = np.where(np.arange(CANDIDATES) < 1, start[1], start)
    perturbed = np.repeat(meeting[None, :, None], VIEWS, axis=0)
    for view in range(1, VIEWS):
        row = rng.integers(CANDIDATES)
        for _ in range(rng.integers(0, 3)):
            perturbed[view, row] = np.nextafter(perturbed[view, row], rng.choice([-1e9, 1e9]))
    return start[:, None], perturbed, np.zeros(1)


def equal_candidates(rng: np.random.Generator) -> Pool:
    """Some candidates coincide, some differ by one rounding."""
    clean, perturbed, goal = ordinary(rng)
    clean[1] = clean[0]
    clean[2] = np.nextafter(clean[0], 1e9)
    perturbed[: VIEWS // 2] = clean
    perturbed[VIEWS // 2 :, 1] = perturbed[VIEWS // 2 :, 0]
    return clean, perturbed, goal


def cancelling(rng: np.random.Generator) -> Pool:
    """Endpoints and goal far from the origin, close to each other; tiny or no perturbation."""
    clean, _, goal = ordinary(rng)
    centre = rng.normal(size=goal.shape) * 1e6
    near = centre + 1e-6 * clean
    size = 10.0 ** rng.uniform(-18, -6, size=(VIEWS, 1, 1))
    perturbed = near + size * rng.normal(size=(VIEWS, *clean.shape))
    perturbed[0] = near
    return near, perturbed, centre + 1e-6 * goal


def scaled(rng: np.random.Generator) -> Pool:
    """Near ties at any power of two, until squares underflow or overflow."""
    factor = 2.0 ** int(rng.integers(-560, 511))
    return tuple(factor * part for part in near_tie(rng))


FAMILIES: list[Callable[[np.random.Generator], Pool]] = [
    ordinary,
    near_tie,
    exact_tie,
    equal_candidates,
    cancelling,
    scaled,
]


@dataclass(frozen=True)
class Judged:
    """One certificate, the elite set it speaks of, and the exact pool."""

    certified: bool
    margin: float
    elites: set[int]
    pool: ExactPool


@cache
def judged(make: Callable[[np.random.Generator], Pool]) -> list[Judged]:
    """The top-1 and the elite certificate of every view of many pools."""
    rng, found = np.random.default_rng(1), list[Judged]()
    for _ in range(POOLS):
        clean, perturbed, goal = make(rng)
        bounds = pool_bounds(*(torch.from_numpy(part) for part in (clean, perturbed, goal)))
        pools = exact_pools(clean, perturbed, goal)
        for count, certificate in (
            (1, top1_certificate(bounds)),
            (ELITES, elite_certificate(bounds, ELITES)),
        ):
            elites = set(elite_indices(bounds.clean_costs, count).tolist())
            outcomes = zip(
                certificate.certified.tolist(), certificate.margin.tolist(), pools, strict=True
            )
            for certified, margin, pool in outcomes:
                found.append(Judged(certified, margin, elites, pool))
    return found


@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_no_certificate_is_wrong(make: Callable[[np.random.Generator], Pool]) -> None:
    """Prop. fixed-pool-certificates holds exactly wherever the server says so."""
    for case in judged(make):
        low, high = case.pool.margin(case.elites)
        assert case.certified == (case.margin > 0)
        if case.certified:
            assert low > 0
            assert case.pool.elites(len(case.elites)) == case.elites
            assert case.pool.selection_survives(len(case.elites))
        if np.isfinite(case.margin):
            assert Fraction(case.margin) <= high


@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_bounds_of_each_candidate_are_on_the_safe_side(
    make: Callable[[np.random.Generator], Pool],
) -> None:
    """Exactly lower <= C - b and C + b <= upper, as the rounding analysis claims."""
    rng = np.random.default_rng(3)
    for _ in range(POOLS // 3):
        clean, perturbed, goal = make(rng)
        bounds = pool_bounds(*(torch.from_numpy(part) for part in (clean, perturbed, goal)))
        for view, pool in enumerate(exact_pools(clean, perturbed, goal)):
            sides = zip(bounds.lower[view].tolist(), bounds.upper[view].tolist(), strict=True)
            for candidate, (lower, upper) in enumerate(sides):
                if np.isfinite(lower) and np.isfinite(upper):
                    assert pool.encloses(candidate, lower, upper)


@pytest.mark.parametrize(
    "make", [f for f in FAMILIES if f is not scaled], ids=lambda make: make.__name__
)
def test_certificates_are_lost_only_to_rounding(
    make: Callable[[np.random.Generator], Pool],
) -> None:
    """A lost certificate had an exact margin below 1e-12 of the largest cost."""
    true = lost = 0
    for case in judged(make):
        elites = case.pool.elites(len(case.elites))
        if elites is None:
            continue
        low, _ = case.pool.margin(elites)
        if low <= 0:
            continue
        true += 1
        if not case.certified:
            lost += 1
            largest = max(case.pool.clean + case.pool.perturbed) * Fraction(4) ** case.pool.exponent
            assert low < Fraction(1e-12) * largest
    if make in {ordinary, cancelling}:
        assert true > POOLS
        assert lost <= 0.01 * true


@pytest.mark.parametrize("make", [ordinary, near_tie, cancelling, scaled])
def test_hostile_pools_get_both_answers(make: Callable[[np.random.Generator], Pool]) -> None:
    """The soundness test would prove nothing if it met only one answer."""
    assert {case.certified for case in judged(make)} == {True, False}
