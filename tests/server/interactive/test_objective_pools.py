"""Pools and paired plans under an objective: what the server answers is what the page says."""

from dataclasses import replace

import numpy as np
import torch
from acpc.contract import (
    CandidatePool,
    CemBudget,
    DistanceTerm,
    Norm,
    Objective,
    PairedRequest,
)
from acpc_server.interactive import PairedCem
from acpc_server.interactive.certify import certify_pool
from planning_world import PlanningWorld, context, moment, pool

ABSOLUTE = Objective((DistanceTerm(Norm.L1, squared=False, step_weights=(0.2, 0.3, 0.5)),))


def test_the_default_objective_changes_no_bit(world: PlanningWorld) -> None:
    plain = certify_pool(world.open(moment()), pool(), context())
    said = certify_pool(world.open(moment(objective=Objective())), pool(), context())
    assert replace(said, timing=plain.timing) == plain


def test_costs_are_those_of_the_rollouts(world: PlanningWorld) -> None:
    session = world.open(moment(objective=ABSOLUTE))
    answer = certify_pool(session, pool(), context())
    clean = session.rollout(session.clean[None], torch.from_numpy(pool())[None], context())[0]
    apart = (clean.double() - session.goal.double()).abs().mean(dim=-1)  # (J, H)
    expected = (apart * torch.tensor([0.2, 0.3, 0.5])).sum(dim=-1)
    np.testing.assert_allclose(answer.clean_costs, expected, rtol=1e-6)
    for view in answer.views:
        assert (np.abs(view.perturbed_costs - answer.clean_costs) <= view.bounds).all()
        assert (view.bounds <= view.chained_bounds).all()
    parameters = answer.receipt.parameters
    assert parameters["objective"]["terms"][0]["norm"] == "l1"


def test_offsets_and_infeasible_candidates_choose_and_are_in_the_receipt(
    world: PlanningWorld,
) -> None:
    candidates, session = pool(), world.open(moment())
    plain = certify_pool(session, candidates, context())
    out = CandidatePool(candidates=candidates, infeasible=(plain.clean_winner,))
    without = certify_pool(session, candidates, context(), out)
    assert without.clean_costs[plain.clean_winner] == np.inf
    assert without.clean_winner == plain.clean_elites[1]
    lifted = np.zeros(len(candidates), np.float32)
    lifted[plain.clean_winner] = 100.0
    moved = CandidatePool(candidates=candidates, offsets=lifted)
    dearer = certify_pool(session, candidates, context(), moved)
    assert dearer.clean_winner == plain.clean_elites[1]
    digests = {a.receipt.anchors_digest for a in (plain, without, dearer)}
    assert len(digests) == 3


def test_updates_of_other_planners_are_answered(world: PlanningWorld) -> None:
    candidates = pool()
    request = moment(kept_elites=2, temperature=0.5)
    answer = certify_pool(world.open(request), candidates, context())
    plain = certify_pool(world.open(moment()), candidates, context())
    for view, same in zip(answer.views, plain.views, strict=True):
        assert view.top1 == same.top1
        assert view.elite == same.elite
        assert view.kept.margin <= view.elite.margin
        assert (view.softmax.lower <= answer.softmax_mean + 1e-9).all()
        assert (answer.softmax_mean <= view.softmax.upper + 1e-9).all()
        assert same.kept is None
        assert same.softmax is None
    assert {view.softmax.total_variation == 1 for view in answer.views if view.softmax} == {
        view.elite is not None and not view.elite.certified for view in plain.views
    }


def test_paired_plans_minimise_the_objective(world: PlanningWorld) -> None:
    start = moment(objective=replace(ABSOLUTE, control_weights=(1e4,)))
    names = ("checkpoint", "history", "past_blocks", "goal", "views", "objective")
    request = PairedRequest(**{name: getattr(start, name) for name in names})
    budget = CemBudget(candidates=16, elites=4, iterations=3, horizon=3)
    plans = PairedCem(world.open(request), budget, 0, "mean").run(context())
    plain = replace(request, objective=None)
    free = PairedCem(world.open(plain), budget, 0, "mean").run(context())
    assert np.square(plans.clean_plan).sum() < np.square(free.clean_plan).sum()
    for view in plans.views:
        assert all(iteration.bound_violations == 0 for iteration in view.iterations)
