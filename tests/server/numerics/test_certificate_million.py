"""A million pools under costs of every kind: not one false certificate, and few true ones lost.

A pool here is a clean pool under one view, which moves the history, the goal or both. Most are
judged in wider floating point with a proven error; a certificate which that leaves open goes to the
judge in fractions.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from acpc.arrays import NDArray
from acpc.contract import DistanceTerm, Norm, Objective
from acpc_server.numerics.cost_bounds import PoolBounds, pool_bounds
from acpc_server.numerics.objectives import PoolCost
from objective_certificate import Asked, exact_added, exact_margin, judge
from pool_families import Array, Families, Pools, Said

VIEWS, CANDIDATES, HORIZON, WIDTH, ELITES = 256, 5, 2, 3, 2
L1, STEPS, COORDINATES = Norm.L1, (0.25, 0.75), (0.0, 0.5, 3.0)

OBJECTIVES: dict[str, tuple[Objective, bool]] = {
    "endpoints": (Objective(), False),  # the paper's, of its own bounds
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


MovedPools = tuple[Array, Array, Array, Array]
MAKERS = ("ordinary", "coarse", "grid", "near_tie", "ray", "cancelling", "equal", "scaled")


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
    clean, perturbed = (
        np.repeat(part[..., None, None] * np.eye(1, WIDTH), HORIZON, axis=-2)
        for part in (start, perturbed)
    )
    return clean, perturbed, np.zeros((rows, WIDTH))


def goals_moved(clean: Array, perturbed: Array, goal: Array) -> MovedPools:
    """Every third pool keeps its goal, every third its history, every third has both moved.

    A goal moves as the first candidate's endpoint does.
    """
    kind = np.arange(len(clean)) % 3
    shift = perturbed[:, :, 0, -1] - clean[:, None, 0, -1]
    moved = goal[:, None] + np.where((kind > 0)[:, None, None], shift, 0)
    still = (kind == 1)[:, None, None, None, None]
    return clean, np.where(still, clean[:, None], perturbed), goal, moved


def made(make: str, rng: np.random.Generator, rows: int, asked: Asked) -> MovedPools:
    """Clean pools (rows, J, H, d), perturbed ones (rows, views, J, H, d), goals and moved ones."""

    def positive(clean: Array, moved: Array, goal: Array) -> NDArray[np.bool_]:
        judged = judge(*goals_moved(clean, moved[:, None], goal), asked)
        elites = np.argsort(judged.costs, axis=1, kind="stable")[:, :ELITES]
        return judged.margins(elites)[:, 0] > 0

    if make == "ray":
        return goals_moved(*ray(rng, rows))
    families = Families(VIEWS, (CANDIDATES, HORIZON), positive, WIDTH)
    return goals_moved(*getattr(families, make)(rng, rows))


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


def bounds_of(
    name: str, pool: MovedPools, candidates: NDArray[np.float32],
    offsets: NDArray[np.float32], infeasible: NDArray[np.bool_],
) -> PoolBounds:  # fmt: skip
    """What the server says of one pool under its views."""
    clean, perturbed, *goals = (torch.from_numpy(part) for part in pool)
    if name == "endpoints":
        return pool_bounds(clean[:, -1], perturbed[:, :, -1], *goals)
    objective, mean = OBJECTIVES[name]
    cost = PoolCost(
        objective,
        WIDTH,
        torch.from_numpy(candidates),
        reduction="mean" if mean else "sum",
        offsets=torch.from_numpy(offsets),
        infeasible=np.flatnonzero(infeasible).tolist(),
    )
    return cost.bounds(clean, perturbed, *goals)


@pytest.mark.parametrize("rows", [3, pytest.param(90, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_certificate_of_any_cost_is_wrong(name: str, make: str, rows: int) -> None:
    """Prop. objective certificates holds wherever the server says so.

    The slow tier has a million pools whose goal moves, and half as many whose goal stays.

    Reported margins never exceed the exact ones, reported bounds hold for the reported costs, and
    what is lost had a margin of rounding size.
    """
    rng = np.random.default_rng(7)
    asked, candidates, offsets = asked_of(name, rng, rows)
    pools = clean, perturbed, goal, moved = made(make, rng, rows, asked)
    judged = judge(*pools, asked)
    given = zip(zip(*pools, strict=True), candidates, offsets, asked.infeasible, strict=True)
    bounds = [bounds_of(name, *one) for one in given]
    for count in (1, ELITES):
        said = Said.of(bounds, count)

        def exactly(row: int, view: int, said: Said = said) -> tuple[Fraction, Fraction]:
            added = exact_added(asked.objective, candidates[row], offsets[row])
            one = replace(asked, added=np.array([added]), infeasible=asked.infeasible[[row]])
            elites = {*said.elites[row].tolist()}
            goals = goal[row], moved[row, view]
            return exact_margin(clean[row], perturbed[row, view], goals, one, elites)

        exact = judged.margins(said.elites)
        true, lost = said.check(exact, judged.error, exactly)
        if make != "scaled":
            scale = judged.largest + np.abs(asked.added).max(axis=-1)[:, None]
            assert (exact[lost] < 1e-12 * scale[lost]).all()
        if make == "ordinary":
            assert said.certified.any() and not said.certified.all(), "or it proves nothing"
        if make in {"ordinary", "grid"} and rows > 3:
            assert said.certified.mean() > 0.02
            assert lost.sum() <= 1e-3 * true.sum()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_both_judges_agree(name: str) -> None:
    """The wide judge's margins lie within its error of the exact ones."""
    rng = np.random.default_rng(3)
    asked, candidates, offsets = asked_of(name, rng, 4)
    pools = clean, perturbed, goal, moved = made("ordinary", rng, 4, asked)
    judged = judge(*pools, asked)
    elites = np.argsort(judged.costs, axis=1)[:, :ELITES]
    margins = judged.margins(elites)
    for row in range(4):
        added = exact_added(asked.objective, candidates[row], offsets[row])
        one = replace(asked, added=np.array([added]), infeasible=asked.infeasible[[row]])
        for view in (0, 1):
            chosen = {*elites[row].tolist()}
            goals = goal[row], moved[row, view]
            ends = exact_margin(clean[row], perturbed[row, view], goals, one, chosen)
            found, error = (
                Fraction(*number[row, view].as_integer_ratio())
                for number in (margins, judged.error)
            )
            assert found - error <= ends[1]
            assert ends[0] <= found + error
