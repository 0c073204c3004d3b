"""Pools in pieces: what candidates cost, and rollouts of views in groups and candidates in runs.

Costs, distances and bounds are each of one candidate. So what is held of predicted latents is a
group of views times a run of candidates, however many there are and however wide a latent is. The
cost is the squared distance of the last step, for pools of many requests at once, or an objective,
with offsets and infeasible candidates, for one pool at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from acpc.contract import CandidatePool, Objective, SoftmaxBounds
from jaxtyping import Float, Float64
from torch import Tensor

from acpc_server.encoding import check_latents
from acpc_server.engine import equal_rows, held_rows, pool_candidates_held, pool_rows_per_call
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.numerics import PoolCost, consistency, cost_bounds, objectives, updates
from acpc_server.scheduling import RequestContext

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


def costs_of(moment: Moment, cost: PoolCost | None, rollouts: Tensor, goals: Tensor) -> Tensor:
    """Compute costs (..., J) of rollouts (..., J, H, dim) to goals (..., dim), or to one (dim,)."""
    if cost is not None:
        return cost.costs(rollouts, goals.reshape(-1, goals.shape[-1])[0])
    ends = rollouts[..., -1, :]
    return cost_bounds.goal_costs(ends, goals[..., None, :], reduction=moment.reduction)


def bounds_of(
    moment: Moment, cost: PoolCost | None, rolled: tuple[Tensor, Tensor, Tensor]
) -> cost_bounds.PoolBounds:
    """Bound pools: clean rollouts (n, J, H, dim), (n, views, J, H, dim) and goals (n, dim).

    With a cost there is one pool.
    """
    clean, perturbed, goals = rolled
    if cost is not None:
        return cost.bounds(clean[0], perturbed, goals[0])
    return cost_bounds.pool_bounds(
        clean[:, None, :, -1],
        perturbed[..., -1, :],
        goals[:, None],
        reduction=moment.reduction,
        endpoint_tolerance=moment.request.endpoint_tolerance,
    )


def chained(bounds: cost_bounds.PoolBounds, acpc: Tensor, weights: Tensor) -> Tensor:
    """Bound costs through ACPC_H (..., J), with horizon weights (H,)."""
    if isinstance(bounds, objectives.ObjectiveBounds):
        return objectives.chained_objective_bounds(bounds, acpc, weights)
    return cost_bounds.chained_bounds(bounds, acpc, float(weights[-1]))


def softmax_bounds(
    moment: Moment, bounds: cost_bounds.PoolBounds, pool: Tensor, elites: int
) -> list[SoftmaxBounds] | None:
    """Bound the softmax mean of one pool under each view; None where none is asked for."""
    if moment.temperature is None:
        return None
    chosen = cost_bounds.elite_indices(bounds.clean_costs.flatten(), elites) if elites else None
    found = updates.softmax_update(bounds, pool, moment.temperature, chosen)
    columns = (
        *(part.flatten(0, -3).numpy() for part in (found.lower, found.upper)),
        *(part.flatten().tolist() for part in (found.displacement, found.total_variation)),
    )
    return [SoftmaxBounds(*row) for row in zip(*columns, strict=True)]


def check_held(moment: Moment, horizon: int, field: str) -> None:
    """Reject, with InvalidArgument, a horizon too long for even one candidate and one view."""
    model, what = moment.checkpoint.model, f"{horizon} steps of one candidate under one view"
    check_latents(moment.engine, model, moment.mode, 2 * horizon, field, what)


def pool_calls(moment: Moment, rows: int, horizon: int) -> float:
    """Price so many rollouts of pools in device calls."""
    return rows / pool_rows_per_call(moment.engine.device.type, moment.card, horizon)


def room_for(
    moment: Moment, rows: int, horizon: int, context: RequestContext
) -> AbstractContextManager[None]:
    """Take a place to hold pieces of so many rollouts; raises as :meth:`DeviceClient.place`."""
    return moment.engine.place(rows * horizon * moment.card.latent_dim, context)


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

    Rollouts (..., n, J, H, dim) of histories (..., n, h, dim), each under one pool; the clean
    history ``of``, (..., h, dim), has the rollouts ``clean``, (..., J, H, dim).
    """
    same = (histories == of[..., None, :, :]).flatten(-2).all(dim=-1)  # (..., n)
    if not same.any():
        return rollouts
    return torch.where(same[..., None, None, None], clean[..., None, :, :, :], rollouts)


class Measures(NamedTuple):
    """Numbers of each candidate of some pools under some views; no latents."""

    bounds: cost_bounds.PoolBounds  # (pools, views, J) or what broadcasts to it
    steps: Float64[Tensor, "pools views candidates horizon"]


def measure(
    moment: Moment, rolled: tuple[Tensor, Tensor, Tensor], cost: PoolCost | None
) -> Measures:
    """Measure pools, with the reduction and tolerance of any moment of theirs.

    ``rolled`` is as of :func:`bounds_of`.
    """
    clean, perturbed, _ = rolled
    steps = consistency.step_distances(clean[:, None], perturbed)
    return Measures(bounds_of(moment, cost, rolled), steps)


def join_measures(parts: Sequence[Measures], rows: Tensor | None) -> Measures:
    """Join measures of one pool's pieces; ``rows`` are those of :func:`shared_rows`."""
    if len(parts) == 1:
        return parts[0]
    steps = torch.cat([part.steps for part in parts], dim=2)
    bounds = cost_bounds.join_bounds([part.bounds for part in parts], rows)
    return Measures(bounds, steps if rows is None else steps[:, :, rows])


def join_costs(parts: Sequence[Tensor], rows: Tensor | None) -> Float64[Tensor, "... candidates"]:
    """Join costs (..., J) of a pool's pieces."""
    costs = torch.cat([*parts], dim=-1)
    return costs if rows is None else costs[..., rows]


def shared_rows(pieces: Sequence[slice], pool: Float[Tensor, "j horizon width"]) -> Tensor | None:
    """Return the row that answers for each candidate where equal ones may lie in two pieces."""
    return equal_rows(pool) if len(pieces) > 1 else None


class Piece(NamedTuple):
    """Some candidates of each pool, measured."""

    costs: Tensor  # clean, (pools, J)
    finite: Tensor  # whether each pool's predictions are, (pools,)
    measures: list[Measures]  # of each group of views


@dataclass(frozen=True)
class Rolls:
    """Rolls pools out, each from the histories of a moment."""

    moment: Moment  # the first of them
    histories: Tensor  # clean one first, (pools, histories, h, dim)
    past: Tensor  # the blocks before, (pools, h - 1, width)
    pools: Tensor  # candidates, (pools, J, H, width)
    goals: Tensor  # (pools, dim)
    group: int  # histories of a pool that are rolled out at a time

    @staticmethod
    def of(moments: Sequence[EncodedMoment], pools: Sequence[Tensor]) -> Rolls:
        """Prepare the rollouts of pools of one shape."""
        histories = torch.stack([torch.cat([one.clean[None], one.views]) for one in moments])
        past = torch.stack([one.asked.past for one in moments])
        goals = torch.stack([one.goal for one in moments])
        stacked = torch.stack([*pools])
        most = group_size(moments[0].asked, len(moments) * stacked.shape[1], stacked.shape[2])
        group = min(most, histories.shape[1])
        return Rolls(moments[0].asked, histories, past, stacked, goals, group)

    def piece(self, rows: slice, cost: PoolCost | None, context: RequestContext) -> Piece:
        """Measure some candidates of every pool under all views, a group of views at a time."""
        moment, model = self.moment, self.moment.checkpoint.model
        own, pools = self.histories[:, 0], self.pools[:, rows]
        finite = torch.ones(len(pools), dtype=torch.bool)
        clean, measures = torch.empty(0), []
        for place, part in enumerate(torch.split(self.histories, self.group, dim=1)):
            flat = moment.engine.rollout_pool(
                model, part.flatten(0, 1), self.past, pools, context, moment.mode
            )
            rollouts = flat.reshape(*part.shape[:2], *flat.shape[1:])
            good = torch.isfinite(rollouts).flatten(1).all(dim=1)  # (pools,)
            if not good.all():
                rollouts = rollouts.masked_fill(~good[:, None, None, None, None], 0.0)
            finite &= good
            if not place:
                clean = rollouts[:, 0]
            views = slice(int(place == 0), None)  # of the first group all but the clean history
            rollouts = share_clean(part[:, views], own, rollouts[:, views], clean)
            measures.append(measure(moment, (clean, rollouts, self.goals), cost))
        costs = costs_of(moment, cost, clean, self.goals)
        return Piece(costs, finite, measures)
