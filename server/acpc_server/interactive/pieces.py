"""Pools in pieces: what candidates cost, and rollouts of views in groups and candidates in runs.

Costs, distances and bounds are each of one candidate. So what is held of predicted latents is a
group of views times a run of candidates, however many there are and however wide a latent is. The
cost is the squared distance of the last step, or an objective with offsets and infeasible
candidates. Each request is computed by its own device calls, so that the bits of its answer follow
from the request alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from acpc.contract import CandidatePool, CleanGaps, Objective
from jaxtyping import Float64
from torch import Tensor

from acpc_server.encoding import check_latents
from acpc_server.engine import equal_rows, held_rows, pool_candidates_held, pool_rows_per_call
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.numerics import PoolCost, consistency, cost_bounds

# Predicted steps of a group of views, however narrow a latent is.
GROUP_STEPS = 2**15


def pool_cost(moment: Moment, pool: Tensor, given: CandidatePool | None = None) -> PoolCost | None:
    """Return the cost of a pool (J, H, block width); None: the squared distance of the last step.

    Raises InvalidArgument: The objective, or what is given of candidates, does not fit the pool.
    """
    objective = moment.request.objective or Objective()
    offsets = None if given is None else given.offsets
    infeasible = () if given is None else given.infeasible
    if objective == Objective() and offsets is None and not infeasible:
        return None
    return PoolCost(
        objective,
        moment.card.latent_dim,
        pool,
        reduction=moment.reduction,
        endpoint_tolerance=moment.request.endpoint_tolerance,
        offsets=None if offsets is None else torch.from_numpy(offsets),
        infeasible=infeasible,
    )


def choices_of(pool: Tensor, given: CandidatePool | None = None) -> Tensor | None:
    """Return the first candidate that is the same choice as each, (J,); None: all differ."""
    columns = [pool]
    if given is not None and given.offsets is not None:
        columns.append(torch.from_numpy(given.offsets)[:, None])
    if given is not None and given.infeasible:
        marks = torch.zeros(len(pool), 1)
        marks[[*given.infeasible]] = 1.0
        columns.append(marks)
    return equal_rows(*columns)


def costs_of(moment: Moment, cost: PoolCost | None, rollouts: Tensor, goal: Tensor) -> Tensor:
    """Compute costs (..., J) of rollouts (..., J, H, dim) to a goal (dim,)."""
    if cost is not None:
        return cost.costs(rollouts, goal)
    return cost_bounds.goal_costs(rollouts[..., -1, :], goal, reduction=moment.reduction)


def check_held(moment: Moment, horizon: int, field: str) -> None:
    """Reject, with InvalidArgument, a horizon too long for even one candidate and one view."""
    what = f"{horizon} steps of one candidate under one view"
    check_latents(moment.engine, moment.model, moment.mode, 2 * horizon, field, what)


def pool_calls(moment: Moment, rows: int, horizon: int) -> float:
    """Price so many rollouts of pools in device calls."""
    return rows / pool_rows_per_call(moment.engine.device.type, moment.card, horizon)


def group_size(moment: Moment, candidates: int, horizon: int) -> int:
    """Return how many histories are rolled out at a time under so many candidates each."""
    return max(1, min(GROUP_STEPS // (candidates * horizon), held_rows(moment.card, horizon)))


def pieces_of(moment: Moment, histories: int, candidates: int, horizon: int) -> list[slice]:
    """Cut candidates into runs whose predictions from so many histories are held at a time.

    Each is whole device calls, so that a pool in pieces has the bits that it has at once.
    """
    device = moment.engine.device.type
    size = pool_candidates_held(device, histories, moment.card, horizon)
    return [slice(start, start + size) for start in range(0, candidates, size)]


def share_clean(histories: Tensor, of: Tensor, rollouts: Tensor, clean: Tensor) -> Tensor:
    """Put the rollouts of the clean history in place of those of histories that equal it.

    Rollouts (n, J, H, dim) of histories (n, h, dim) under one pool; the clean history ``of``,
    (h, dim), has the rollouts ``clean``, (J, H, dim).
    """
    same = (histories == of).flatten(1).all(dim=1)  # (n,)
    return torch.where(same[:, None, None, None], clean, rollouts) if same.any() else rollouts


class Measures(NamedTuple):
    """Numbers of each candidate of a pool under some views; no latents."""

    bounds: cost_bounds.PoolBounds  # (views, J) or what broadcasts to it
    steps: Float64[Tensor, "views candidates horizon"]


def measure(
    encoded: EncodedMoment, cost: PoolCost | None, clean: Tensor, views: Tensor, goals: Tensor
) -> Measures:
    """Measure a pool rolled out from the clean history (J, H, dim) and from views (n, J, H, dim).

    ``goals`` are those of the views, (n, dim).
    """
    steps = consistency.step_distances(clean[None], views)
    if cost is not None:
        return Measures(cost.bounds(clean, views, encoded.goal, goals), steps)
    bounds = cost_bounds.pool_bounds(
        clean[:, -1],
        views[..., -1, :],
        encoded.goal,
        goals,
        reduction=encoded.asked.reduction,
        endpoint_tolerance=encoded.asked.request.endpoint_tolerance,
    )
    return Measures(bounds, steps)


def join_measures(parts: Sequence[Measures], choices: Tensor | None) -> Measures:
    """Join measures of a pool's pieces; copies of a choice get the first one's numbers."""
    steps = torch.cat([part.steps for part in parts], dim=1)
    bounds = cost_bounds.join_bounds([part.bounds for part in parts], choices)
    return Measures(bounds, steps if choices is None else steps[:, choices])


def join_costs(parts: Sequence[Tensor], choices: Tensor | None) -> Float64[Tensor, "candidates"]:
    """Join costs (J,) of a pool's pieces, likewise."""
    costs = torch.cat([*parts])
    return costs if choices is None else costs[choices]


def clean_gaps(costs: Tensor, elites: int, choices: Tensor | None) -> CleanGaps:
    """Return how far costs (J,) of what is chosen lie from those of other choices."""
    order = cost_bounds.elite_indices(costs, max(1, elites))

    def gap(elite: Tensor) -> float:
        found = float(cost_bounds.choice_gap(costs, costs, elite, choices))
        return 0.0 if math.isnan(found) else found  # both are infeasible: a tie

    return CleanGaps(gap(order[:1]), gap(order) if elites else None)
