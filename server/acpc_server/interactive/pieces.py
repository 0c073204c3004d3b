"""Pools in pieces: views in groups, candidates in runs, and of each only numbers kept.

All that is asked of a pool is said of one candidate at a time: costs, distances, bounds. So what is
held of predicted latents is a group of views times a run of candidates, however many there are and
however wide a latent is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from acpc_server.encoding import check_latents
from acpc_server.engine import equal_rows, held_rows, pool_candidates_held
from acpc_server.interactive.costs import bounds_of, costs_of
from acpc_server.interactive.planning import PlanningSession
from acpc_server.numerics import PoolCost, consistency, cost_bounds
from acpc_server.scheduling import RequestContext

# Predicted steps of a group of views, however narrow a latent is.
GROUP_STEPS = 2**15


def check_held(session: PlanningSession, horizon: int, field: str) -> None:
    """Reject, with InvalidArgument, steps that even one candidate and one view are too many of."""
    model, what = session.checkpoint.model, f"{horizon} steps of one candidate under one view"
    check_latents(session.engine, model, session.mode, 2 * horizon, field, what)


def room_for(
    session: PlanningSession, rows: int, horizon: int, context: RequestContext
) -> AbstractContextManager[None]:
    """A place to hold pieces of so many rollouts; raises as :meth:`DeviceEngine.place`."""
    return session.engine.place(rows * horizon * session.card.latent_dim, context)


def group_size(session: PlanningSession, candidates: int, horizon: int) -> int:
    """Histories that are rolled forward at a time under so many candidates each."""
    return max(1, min(GROUP_STEPS // (candidates * horizon), held_rows(session.card, horizon)))


def pieces_of(
    session: PlanningSession, histories: int, candidates: int, horizon: int
) -> list[slice]:
    """Runs of the candidates whose predictions from so many histories are held at a time.

    Each is whole device calls, so that a pool in pieces has the bits that it has at once.
    """
    device = session.engine.device.type
    size = pool_candidates_held(device, histories, session.card, horizon)
    return [slice(start, start + size) for start in range(0, candidates, size)]


def share_clean(histories: Tensor, of: Tensor, rollouts: Tensor, clean: Tensor) -> Tensor:
    """Rollouts (..., n, J, H, dim) of histories (..., n, h, dim), each under one pool.

    Those of the clean history ``of``, (..., h, dim), which are (..., J, H, dim), stand in for those
    of each that equals it.
    """
    same = (histories == of[..., None, :, :]).flatten(-2).all(dim=-1)  # (..., n)
    if not same.any():
        return rollouts
    return torch.where(same[..., None, None, None], clean[..., None, :, :, :], rollouts)


class Measures(NamedTuple):
    """What rollouts say of each candidate of some pools under some views; no latents.

    Attributes:
        bounds: Costs and their bounds, (pools, views, J) or what broadcasts to it.
        steps: Distances after each step, (pools, views, J, H).
    """

    bounds: cost_bounds.PoolBounds
    steps: Float64[Tensor, "pools views candidates horizon"]


def measure(
    session: PlanningSession, rolled: tuple[Tensor, Tensor, Tensor], cost: PoolCost | None
) -> Measures:
    """Measures of pools, with the reduction and tolerance of any session of theirs.

    ``rolled`` are clean rollouts (pools, J, H, dim), those from each view
    (pools, views, J, H, dim) and goals (pools, dim). With a cost there is one pool.
    """
    clean, perturbed, _ = rolled
    steps = consistency.step_distances(clean[:, None], perturbed)
    return Measures(bounds_of(session, cost, rolled), steps)


def join_measures(parts: Sequence[Measures], rows: Tensor | None) -> Measures:
    """Measures of one pool from those of its pieces; ``rows`` are those of :func:`shared_rows`."""
    if len(parts) == 1:
        return parts[0]
    steps = torch.cat([part.steps for part in parts], dim=2)
    bounds = cost_bounds.join_bounds([part.bounds for part in parts], rows)
    return Measures(bounds, steps if rows is None else steps[:, :, rows])


def join_costs(parts: Sequence[Tensor], rows: Tensor | None) -> Float64[Tensor, "... candidates"]:
    """Costs (..., J) from those of a pool's pieces."""
    costs = torch.cat([*parts], dim=-1)
    return costs if rows is None else costs[..., rows]


def shared_rows(pieces: Sequence[slice], pool: Float[Tensor, "j horizon width"]) -> Tensor | None:
    """Whose answer each candidate has, where equal ones may lie in different pieces; else None."""
    return equal_rows(pool) if len(pieces) > 1 else None


class Piece(NamedTuple):
    """What some candidates of each pool are found to be.

    Attributes:
        clean: Of their clean rollouts what a coverage goal needs, (pools, J, steps, dim).
        costs: Clean costs, (pools, J).
        finite: Which pools' predictions are, (pools,).
        measures: Of each group of views.
    """

    clean: Tensor
    costs: Tensor
    finite: Tensor
    measures: list[Measures]


@dataclass(frozen=True)
class Rolls:
    """Rolls pools forward, from the histories of a session each.

    Attributes:
        session: The first of the sessions.
        histories: The clean history of each and its views, (pools, histories, h, dim).
        past: The blocks before, (pools, h - 1, width).
        pools: The candidates, (pools, J, H, width).
        goals: Latents, (pools, dim).
        group: Histories of a pool that are rolled forward at a time.
    """

    session: PlanningSession
    histories: Tensor
    past: Tensor
    pools: Tensor
    goals: Tensor
    group: int

    @staticmethod
    def of(sessions: Sequence[PlanningSession], pools: Sequence[Tensor]) -> Rolls:
        """The rollouts that pools of some sessions, of one shape, ask for."""
        histories = torch.stack([torch.cat([s.clean[None], s.views]) for s in sessions])
        past, goals = (
            torch.stack([s.past for s in sessions]),
            torch.stack([s.goal for s in sessions]),
        )
        stacked = torch.stack([*pools])
        most = group_size(sessions[0], len(sessions) * stacked.shape[1], stacked.shape[2])
        return Rolls(sessions[0], histories, past, stacked, goals, min(most, histories.shape[1]))

    def piece(self, rows: slice, cost: PoolCost | None, context: RequestContext) -> Piece:
        """Some candidates of every pool under all views, a group of them at a time."""
        session, model = self.session, self.session.checkpoint.model
        own, pools = self.histories[:, 0], self.pools[:, rows]
        finite = torch.ones(len(pools), dtype=torch.bool)
        clean, measures = torch.empty(0), []
        for place, part in enumerate(torch.split(self.histories, self.group, dim=1)):
            flat = session.engine.rollout_pool(
                model, part.flatten(0, 1), self.past, pools, context, session.mode
            )
            rollouts = flat.reshape(
                *part.shape[:2], *flat.shape[1:]
            )  # (pools, histories, J, H, dim)
            good = torch.isfinite(rollouts).flatten(1).all(dim=1)  # (pools,)
            if not good.all():
                rollouts = rollouts.masked_fill(~good[:, None, None, None, None], 0.0)
            finite &= good
            if not place:
                clean = rollouts[:, 0]
            views = slice(int(place == 0), None)  # of the first group all but the clean history
            rollouts = share_clean(part[:, views], own, rollouts[:, views], clean)
            measures.append(measure(session, (clean, rollouts, self.goals), cost))
        costs = costs_of(session, cost, clean, self.goals)
        read = clean if cost is not None else clean[..., -1:, :]
        wanted = len(pools[0]) if session.coverage_goal is not None else 0
        # A copy: a part of the rollouts would keep them all.
        return Piece(read[:, :wanted].clone(), costs, finite, measures)
