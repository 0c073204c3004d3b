"""What the candidates of a session cost: the squared distance of the last step, or an objective.

The squared distance is computed for pools of many requests at once; an objective, with what a
request says of single candidates, for one pool at a time.
"""

from __future__ import annotations

import torch
from acpc.contract import CandidatePool, Objective, SoftmaxBounds
from torch import Tensor

from acpc_server.interactive.planning import PlanningSession
from acpc_server.numerics import PoolCost, cost_bounds, objectives, updates


def pool_cost(
    session: PlanningSession, pool: Tensor, said: CandidatePool | None = None
) -> PoolCost | None:
    """What a pool (J, H, block width) costs; None: the squared distance of the last step.

    Raises:
        InvalidArgument: The objective, or what is said of candidates, does not fit the pool.
    """
    objective = session.request.objective or Objective()
    offsets = None if said is None else said.offsets
    infeasible = () if said is None else said.infeasible
    if objective == Objective() and offsets is None and not infeasible:
        return None
    return PoolCost(
        objective,
        session.card.latent_dim,
        pool,
        reduction=session.reduction,
        endpoint_tolerance=session.endpoint_tolerance,
        offsets=None if offsets is None else torch.from_numpy(offsets),
        infeasible=infeasible,
    )


def costs_of(
    session: PlanningSession, cost: PoolCost | None, rollouts: Tensor, goals: Tensor
) -> Tensor:
    """Costs (..., J) of rollouts (..., J, H, dim) to goals (..., dim), or to one goal (dim,)."""
    if cost is not None:
        return cost.costs(rollouts, goals.reshape(-1, goals.shape[-1])[0])
    ends = rollouts[..., -1, :]
    return cost_bounds.goal_costs(ends, goals[..., None, :], reduction=session.reduction)


def bounds_of(
    session: PlanningSession, cost: PoolCost | None, rolled: tuple[Tensor, Tensor, Tensor]
) -> cost_bounds.PoolBounds:
    """Bounds of pools: clean rollouts (n, J, H, dim), (n, views, J, H, dim) and goals (n, dim).

    With a cost there is one pool.
    """
    clean, perturbed, goals = rolled
    if cost is not None:
        return cost.bounds(clean[0], perturbed, goals[0])
    return cost_bounds.pool_bounds(
        clean[:, None, :, -1],
        perturbed[..., -1, :],
        goals[:, None],
        reduction=session.reduction,
        endpoint_tolerance=session.endpoint_tolerance,
    )


def chained(bounds: cost_bounds.PoolBounds, acpc: Tensor, weights: Tensor) -> Tensor:
    """The bounds through ACPC_H (..., J), of horizon weights (H,)."""
    if isinstance(bounds, objectives.ObjectiveBounds):
        return objectives.chained_objective_bounds(bounds, acpc, weights)
    return cost_bounds.chained_bounds(bounds, acpc, float(weights[-1]))


def within(
    session: PlanningSession, cost: PoolCost | None, costs: Tensor, bounds: Tensor
) -> Tensor:
    """How far the endpoint tolerance may move perturbed costs (..., J), which have bounds.

    Of an objective the bounds themselves, which is more.
    """
    tolerance = session.endpoint_tolerance
    if cost is not None:
        return bounds if tolerance else torch.zeros_like(bounds)
    divisor = len(session.goal) if session.reduction == "mean" else 1
    return tolerance * (2 * (costs * divisor).sqrt() + tolerance) / divisor


def softmax_bounds(
    session: PlanningSession, bounds: cost_bounds.PoolBounds, pool: Tensor, elites: int
) -> list[SoftmaxBounds | None]:
    """Where the softmax mean of one pool stays under each view; None each where it is not asked."""
    views = bounds.perturbed_costs.flatten(0, -2)
    if session.temperature is None:
        return [None] * len(views)
    chosen = cost_bounds.elite_indices(bounds.clean_costs.flatten(), elites) if elites else None
    found = updates.softmax_update(bounds, pool, session.temperature, chosen)
    parts = (found.lower.flatten(0, -3), found.upper.flatten(0, -3))
    return [
        SoftmaxBounds(lower.numpy(), upper.numpy(), *scalars)
        for lower, upper, *scalars in zip(
            *parts,
            found.displacement.flatten().tolist(),
            found.total_variation.flatten().tolist(),
            strict=True,
        )
    ]
