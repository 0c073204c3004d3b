"""Paired CEM runs: the corollary, the protocol, and the numbers against loops of its own."""

from dataclasses import replace

import numpy as np
import numpy_reference as metrics
import pytest
import torch
from acpc.contract import ApplyTo, PairedPlans, PlanStart
from acpc_server.interactive import EncodedMoment
from acpc_server.interactive.paired_cem import CemBudget, PairedCem
from acpc_server.numerics.updates import pool_normals
from planning_world import SEEDS, WIDTH, PlanningWorld, context, moment, noise

SMALL = CemBudget(candidates=16, elites=4, iterations=4, horizon=3)


def planned(
    world: PlanningWorld,
    request: PlanStart,
    *,
    model: int = 0,
    budget: CemBudget = SMALL,
    seed: int = 0,
    returns: str = "mean",
) -> PairedPlans:
    session = world.open(request, model=model)
    return PairedCem(session, budget, seed, returns).run(context())


@pytest.mark.parametrize("seeds", [4, pytest.param(24, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("returns", ["mean", pytest.param("best", marks=pytest.mark.process)])
def test_runs_certified_at_every_iteration_return_the_same_plan(
    world: PlanningWorld, returns: str, seeds: int
) -> None:
    """Cor. adaptive-cem-alignment, bit for bit, over many models, moments and severities."""
    certified = apart = 0
    for seed in range(seeds):
        views = noise(*10.0 ** np.random.default_rng(seed).uniform(-6, -0.5, 4), seed=seed)
        views = replace(views, apply_to=[*ApplyTo][1 + seed % 3])
        request = moment(seed, 1 + seed % 3, views=views)
        answer = planned(world, request, model=SEEDS[seed % 3], seed=seed, returns=returns)
        for paired in answer.views:
            elites = [iteration.elite.certified for iteration in paired.iterations]
            top1 = paired.iterations[-1].top1.certified
            assert paired.certified == (all(elites) and (returns == "mean" or top1))
            if paired.certified:
                assert np.array_equal(paired.perturbed_plan, answer.clean_plan)
                assert paired.first_divergence is None
                assert paired.selection_regret == 0
            for iteration in paired.iterations:
                assert iteration.same_elites or not iteration.elite.certified
            certified += paired.certified
            apart += paired.first_divergence is not None
    assert certified > 0.8 * seeds
    assert apart > 0.8 * seeds


def test_nothing_is_certified_once_elites_have_differed(world: PlanningWorld) -> None:
    answer = planned(world, moment(views=noise(0.05, 0.3, draws=4)))
    diverged = [paired for paired in answer.views if paired.first_divergence is not None]
    assert diverged
    for paired in diverged:
        first = paired.first_divergence
        same = [iteration.same_elites for iteration in paired.iterations]
        assert same == [at < first for at in range(SMALL.iterations)]
        for iteration in paired.iterations[first + 1 :]:
            for selection in (iteration.elite, iteration.top1):
                assert (selection.certified, selection.margin) == (False, -np.inf)


def run(
    session: EncodedMoment, latents: torch.Tensor, goal: np.ndarray, budget: CemBudget, seed: int
) -> tuple[list[np.ndarray], list[list[int]], np.ndarray, np.ndarray]:
    """One CEM run as a loop over candidates: pools, elites, final mean, best of the last pool."""
    mean = np.zeros((budget.horizon, WIDTH))
    std = np.ones((budget.horizon, WIDTH))
    pools, chosen, best = [], [], mean
    for t in range(budget.iterations):
        normals = pool_normals(
            seed, t, candidates=budget.candidates, horizon=budget.horizon, width=WIDTH
        ).numpy()
        pool = np.stack([mean, *(mean + std * normals[1:])]).astype(np.float32)
        ends = session.rollout(latents[None], torch.from_numpy(pool)[None], context())[0, :, -1]
        costs = [metrics.between(end.numpy(), goal) ** 2 / len(goal) for end in ends]
        elites = metrics.elites(costs, budget.elites)
        best = pool[elites[0]]
        picked = pool[elites].astype(np.float64)
        mean, std = picked.mean(axis=0), picked.std(axis=0, ddof=1)
        pools.append(pool)
        chosen.append(elites)
    return pools, chosen, mean, best


@pytest.mark.parametrize("apply_to", list(ApplyTo)[1:], ids=str)
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 9))]
)
def test_both_branches_follow_the_protocol(
    world: PlanningWorld, seed: int, apply_to: ApplyTo
) -> None:
    """Same start, common random numbers, each its own elites; regret on the clean history."""
    views = replace(noise(0.02, 0.2, seed=seed), apply_to=apply_to)
    session = world.open(moment(seed, views=views), model=SEEDS[seed % 3])
    answers = {r: PairedCem(session, SMALL, seed, r).run(context()) for r in ("mean", "best")}
    goal = session.goal.numpy()
    pools, chosen, mean, best = run(session, session.clean, goal, SMALL, seed)
    for returns, expected in (("mean", mean), ("best", best)):
        plan = answers[returns].clean_plan
        np.testing.assert_allclose(plan, expected, rtol=1e-4, atol=1e-5)

    def costs(plans: np.ndarray) -> list[float]:
        given = torch.from_numpy(plans)[None]
        ends = session.rollout(session.clean[None], given, context())[0, :, -1]
        return [metrics.between(end.numpy(), goal) ** 2 / len(goal) for end in ends]

    for row, (latents, moved) in enumerate(zip(session.views, session.goals, strict=True)):
        _, others, *ends = run(session, latents, moved.numpy(), SMALL, seed)
        for returns, end in zip(("mean", "best"), ends, strict=True):
            plan = answers[returns].views[row]
            np.testing.assert_allclose(plan.perturbed_plan, end, rtol=1e-4, atol=1e-5)
            clean, other = costs(np.stack([answers[returns].clean_plan, plan.perturbed_plan]))
            assert plan.selection_regret == pytest.approx(max(0.0, other - clean), abs=1e-5)
        paired = answers["mean"].views[row]
        differ = [t for t in range(SMALL.iterations) if set(chosen[t]) != set(others[t])]
        assert paired.first_divergence == (differ[0] if differ else None)
        for t, iteration in enumerate(paired.iterations):
            gaps, lowest = answers["mean"].clean_gaps[t], sorted(costs(pools[t]))
            assert gaps.top1 == pytest.approx(lowest[1] - lowest[0], abs=1e-5)
            assert gaps.elite == pytest.approx(lowest[4] - lowest[3], abs=1e-5)
            pair, pool = torch.stack([session.clean, latents]), torch.from_numpy(pools[t])
            rolled = session.rollout(pair, pool.expand(2, -1, -1, -1), context()).numpy()
            uniform = metrics.uniform(SMALL.horizon)
            full = [metrics.acpc(a, b, uniform) for a, b in zip(*rolled, strict=True)]
            one = [metrics.step_distances(a, b)[0] for a, b in zip(*rolled, strict=True)]
            for found, values in ((iteration.acpc_q90, full), (iteration.acpc_one_step_q90, one)):
                assert found == pytest.approx(metrics.quantile(values, 0.9), rel=1e-3)


def test_receipts_cover_budget_seed_and_return(world: PlanningWorld) -> None:
    least = CemBudget(candidates=5, elites=4, iterations=2, horizon=2)
    receipts = {
        planned(world, moment(), **{"budget": least, **changed}).receipt.parameters_digest
        for changed in (
            {},
            {"seed": 1},
            {"returns": "best"},
            {"budget": CemBudget(5, 4, 1, 2)},
            {"budget": CemBudget(5, 3, 2, 2)},
            {"budget": CemBudget(6, 4, 2, 2)},
            {"budget": CemBudget(5, 4, 2, 1)},
        )
    }
    tolerant = planned(world, moment(endpoint_tolerance=1e-3), budget=least)
    receipts.add(tolerant.receipt.parameters_digest)
    assert len(receipts) == 8
