"""A million pools, random and adversarial: not one false certificate, and few true ones lost.

A pool here is a clean pool under one view. Most are judged in wider floating point with a proven
error; a certificate which that leaves open goes to the judge in fractions.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from acpc.arrays import NDArray
from acpc.contract import Objective
from acpc_server.numerics.cost_bounds import pool_bounds
from objective_certificate import Asked, JudgedObjective, exact_candidate, exact_margin, judge
from pool_families import Array, Families, Pools, Said

VIEWS, CANDIDATES, ELITES = 64, 5, 2


def endpoints(pools: int) -> Asked:
    """The cost of so many pools: the squared distance of the last step alone."""
    nothing = np.zeros((pools, CANDIDATES))
    return Asked(Objective(), False, nothing, nothing.astype(bool))


def judged_pools(clean: Array, perturbed: Array, goal: Array) -> JudgedObjective:
    """Pools (n, J, d) under views (n, views, J, d)."""
    return judge(clean[:, :, None], perturbed[:, :, :, None], goal, endpoints(len(clean)))


def positive(clean: Array, moved: Array, goal: Array) -> NDArray[np.bool_]:
    judged = judged_pools(clean, moved[:, None], goal)
    elites = np.argsort(judged.costs, axis=1, kind="stable")[:, :ELITES]
    return judged.margins(elites)[:, 0] > 0


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


FAMILIES = Families(VIEWS, (CANDIDATES,), positive)
MAKERS = [
    FAMILIES.ordinary,
    FAMILIES.coarse,
    FAMILIES.grid,
    FAMILIES.near_tie,
    ray,
    FAMILIES.cancelling,
    FAMILIES.equal,
    FAMILIES.scaled,
]


@pytest.mark.parametrize("rows", [32, pytest.param(2048, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_no_certificate_of_a_million_is_wrong(
    make: Callable[[np.random.Generator, int], Pools], rows: int
) -> None:
    """Prop. fixed-pool-certificates holds wherever the server says so; the slow tier has a million.

    Prints how many true certificates are lost; ``pytest -rP`` shows it.
    """
    clean, perturbed, goal = make(np.random.default_rng(11), rows)
    judged = judged_pools(clean, perturbed, goal)
    tensors = [torch.from_numpy(part) for part in (clean, perturbed, goal)]
    bounds = [pool_bounds(*(part[row] for part in tensors)) for row in range(rows)]
    for count in (1, ELITES):
        said = Said.of(bounds, count)

        def exactly(row: int, view: int, said: Said = said) -> tuple[Fraction, Fraction]:
            pool = clean[row, :, None], perturbed[row, view, :, None], goal[row]
            return exact_margin(*pool, endpoints(1), {*said.elites[row].tolist()})

        exact, certified = judged.margins(said.elites), said.certified
        true, lost = said.check(exact, judged.error, exactly)
        if make.__name__ != "scaled":
            assert (exact[lost] < 1e-12 * judged.largest[lost]).all()
        if make.__name__ not in {"grid", "ray", "equal"}:
            assert certified.any() and not certified.all(), "both answers, or it proves nothing"
        if make.__name__ in {"ordinary", "coarse", "grid"}:
            assert certified.sum() > 0.05 * certified.size
            assert lost.sum() <= 1e-4 * true.sum()


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_bounds_of_each_candidate_are_on_the_safe_side(
    make: Callable[[np.random.Generator, int], Pools],
) -> None:
    """Exactly lower <= C - b and C + b <= upper, as the rounding analysis claims."""
    clean, perturbed, goal = make(np.random.default_rng(3), 4)
    for row in range(len(clean)):
        bounds = pool_bounds(*(torch.from_numpy(part[row]) for part in (clean, perturbed, goal)))
        for view, seen in enumerate(perturbed[row]):
            sides = zip(bounds.lower[view].tolist(), bounds.upper[view].tolist(), strict=True)
            for candidate, (lower, upper) in enumerate(sides):
                if np.isfinite(lower) and np.isfinite(upper):
                    ends = clean[row, candidate, None], seen[candidate, None], goal[row]
                    cost, bound = exact_candidate(*ends, endpoints(1), bits=200)
                    assert Fraction(lower) <= cost[1] - bound[0]
                    assert cost[0] + bound[0] <= Fraction(upper)
