"""Counts what certificates say, by checkpoint: granted, or why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from acpc.contract import PairedPlans, PoolCertificate, ViewCertificate

from acpc_server.interactive.planning import PlanningSession
from acpc_server.numerics import cost_bounds
from acpc_server.scheduling import Priority, RequestContext


def count_pool(session: PlanningSession, answer: PoolCertificate, context: RequestContext) -> None:
    """Count the certificates of a pool that a caller sent."""
    elites = sorted(answer.clean_elites)
    found = [
        ("top1", view.top1.certified, view.perturbed_winner != answer.clean_winner)
        for view in answer.views
    ]
    found += [
        ("elite", view.elite.certified, not view.elite.certified and _elites(view, elites))
        for view in answer.views
        if view.elite is not None
    ]
    _count(session, found, context)


def count_plans(session: PlanningSession, plans: PairedPlans, context: RequestContext) -> None:
    """Count the certificates of paired CEM runs, unless a study made them."""
    found = [("plan", view.certified, view.first_divergence is not None) for view in plans.views]
    _count(session, found, context)


def _elites(view: ViewCertificate, clean: list[int]) -> bool:
    """Whether the view has another elite set than the clean history."""
    costs = torch.from_numpy(view.perturbed_costs)
    return bool(cost_bounds.elite_indices(costs, len(clean)).sort().values.tolist() != clean)


def _count(
    session: PlanningSession, found: Iterable[tuple[str, bool, bool]], context: RequestContext
) -> None:
    if context.priority is not Priority.INTERACTIVE:
        return
    outcomes = Counter(
        (name, "certified" if certified else "choice_changes" if changes else "bound_too_wide")
        for name, certified, changes in found
    )
    for (name, outcome), times in outcomes.items():
        session.metrics.count_certificates(session.checkpoint.name, name, outcome, times)
