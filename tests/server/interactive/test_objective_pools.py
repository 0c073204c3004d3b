"""Pools and paired plans under an objective: what the server answers is what the page says."""

import numpy as np
from acpc.contract import (
    CandidatePool,
)
from planning_world import PlanningWorld, certify_pool, context, moment, pool


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
