"""A million pools under costs of every kind: not one false certificate, and few true ones lost.

A pool here is a clean pool under one view, as in ``test_certificate_million``. Most are judged in
wider floating point with a proven error, what that leaves open in fractions.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from acpc.arrays import NDArray
from acpc.contract import DistanceTerm, Norm, Objective
from acpc_server.numerics.objectives import PoolCost
from objective_certificate import Asked, exact_added, exact_margin, judge
from pool_families import Array, Families, Said

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


def families(asked: Asked) -> Families:
    def positive(clean: Array, moved: Array, goal: Array) -> NDArray[np.bool_]:
        judged = judge(clean, moved[:, None], goal, asked)
        elites = np.argsort(judged.costs, axis=1, kind="stable")[:, :ELITES]
        return judged.margins(elites)[:, 0] > 0

    return Families(VIEWS, (CANDIDATES, HORIZON), positive, WIDTH)


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


@pytest.mark.parametrize("rows", [2, pytest.param(88, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("make", ["ordinary", "grid", "near_tie", "cancelling", "equal", "scaled"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_certificate_of_any_cost_is_wrong(name: str, make: str, rows: int) -> None:
    """Prop. objective certificates holds wherever the server says so; the slow tier has a million.

    Reported margins never exceed the exact ones, reported bounds hold for the reported costs, and
    what is lost had a margin of rounding size.
    """
    rng = np.random.default_rng(7)
    asked, candidates, offsets = asked_of(name, rng, rows)
    clean, perturbed, goal = getattr(families(asked), make)(rng, rows)
    judged = judge(clean, perturbed, goal, asked)
    bounds = []
    for row in range(rows):
        cost = PoolCost(
            asked.objective,
            WIDTH,
            torch.from_numpy(candidates[row]),
            reduction="mean" if asked.mean else "sum",
            offsets=torch.from_numpy(offsets[row]),
            infeasible=np.flatnonzero(asked.infeasible[row]).tolist(),
        )
        pool = (torch.from_numpy(part[row]) for part in (clean, perturbed, goal))
        bounds.append(cost.bounds(*pool))
    said = Said.of(bounds, ELITES)

    def exactly(row: int, view: int) -> tuple[Fraction, Fraction]:
        added = exact_added(asked.objective, candidates[row], offsets[row])
        one = replace(asked, added=np.array([added]), infeasible=asked.infeasible[[row]])
        elites = {*said.elites[row].tolist()}
        return exact_margin(clean[row], perturbed[row, view], goal[row], one, elites)

    exact = judged.margins(said.elites)
    true, lost = said.check(exact, judged.error, exactly)
    if make != "scaled":
        scale = judged.largest + np.abs(asked.added).max(axis=-1)[:, None]
        assert (exact[lost] < 1e-12 * scale[lost]).all()
    if make in {"ordinary", "grid"} and rows > 2:
        assert said.certified.mean() > 0.02
        assert lost.sum() <= 1e-3 * true.sum()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_both_judges_agree(name: str) -> None:
    """The wide judge's margins lie within its error of the exact ones."""
    rng = np.random.default_rng(3)
    asked, candidates, offsets = asked_of(name, rng, 4)
    clean, perturbed, goal = families(asked).ordinary(rng, 4)
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
