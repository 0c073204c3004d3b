"""Certificates of pools that are rolled out, of many at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from acpc.contract import CleanGaps, SelectionCertificate, ViewCertificate
from torch import Tensor

from acpc_server.interactive.costs import (
    bounds_of,
    chained,
    costs_of,
    pool_cost,
    softmax_bounds,
)
from acpc_server.interactive.planning import PlanningSession
from acpc_server.numerics import PoolCost, consistency, cost_bounds, linear_quantiles, updates

QUANTILE = 0.90


def share_clean(histories: Tensor, of: Tensor, rollouts: Tensor, clean: Tensor) -> Tensor:
    """Rollouts (..., n, J, H, dim) of histories (..., n, h, dim), each under one pool.

    Those of the clean history ``of``, (..., h, dim), which are (..., J, H, dim), stand in for those
    of each that equals it.
    """
    same = (histories == of[..., None, :, :]).flatten(-2).all(dim=-1)  # (..., n)
    if not same.any():
        return rollouts
    return torch.where(same[..., None, None, None], clean[..., None, :, :, :], rollouts)


def certify_views(
    session: PlanningSession,
    clean: Tensor,
    perturbed: Tensor,
    weights: Tensor,
    elites: int,
    pool: Tensor,
) -> list[ViewCertificate]:
    """Certificates of one pool under some views, as rolled out.

    Of clean rollouts (J, H, dim) and those of the same candidates from each view,
    (views, J, H, dim), with horizon weights (H,), and an elite set of ``elites``, 0 for none, of
    the candidates ``pool``, (J, H, block width), which cost what the session's objective says. Each
    row of ``perturbed`` has one certificate, which calls it view (0, row).
    """
    rolled = clean[None], perturbed[None], session.goal[None]
    return certify_pools(session, rolled, weights, elites, pool, pool_cost(session, pool))[0]


def certify_pools(
    session: PlanningSession,
    rolled: tuple[Tensor, Tensor, Tensor],
    weights: Tensor,
    elites: int,
    pool: Tensor,
    cost: PoolCost | None,
) -> list[list[ViewCertificate]]:
    """The same of many pools, with the reduction and tolerance of any session of theirs.

    ``rolled`` are clean rollouts (pools, J, H, dim), those from each view
    (pools, views, J, H, dim) and goals (pools, dim). With a cost, or a softmax update, there is one
    pool: ``pool``.
    """
    clean, perturbed, _ = rolled
    count, views = perturbed.shape[:2]
    steps = consistency.step_distances(clean[:, None], perturbed)  # (pools, views, J, H)
    acpc = consistency.acpc(steps, weights)  # (pools, views, J)
    bounds = bounds_of(session, cost, rolled)
    through = chained(bounds, acpc, weights)
    excess = cost_bounds.excess_cost(bounds)
    chosen: list[Iterable[SelectionCertificate | None]] = [[None] * (count * views)] * 3
    chosen[0] = _selections(cost_bounds.top1_certificate(bounds))
    if elites:
        chosen[1] = _selections(cost_bounds.elite_certificate(bounds, elites))
    if session.kept_elites:
        chosen[2] = _selections(updates.kept_certificate(bounds, elites, session.kept_elites))
    by_candidate = (
        bounds.perturbed_costs, bounds.displacements, bounds.bounds, through,
        steps[..., 0].contiguous(), acpc,
    )  # fmt: skip
    arrays = [x.flatten(0, 1) for x in by_candidate]  # (pools x views, J)
    scalars = excess.perturbed_winner, excess.excess, excess.bound
    quantiles = [linear_quantiles(x, QUANTILE) for x in arrays[-2:]] if views else [[], []]
    columns = (
        itertools.cycle(range(views)), *(x.numpy() for x in arrays),
        *(x.flatten().tolist() for x in scalars), *chosen[:2], *quantiles, chosen[2],
        softmax_bounds(session, bounds, pool, elites),
    )  # fmt: skip
    rows = [ViewCertificate(0, *row) for row in zip(*columns, strict=False)]
    return [rows[pool * views : (pool + 1) * views] for pool in range(count)]


def clean_gaps(costs: Tensor, elites: int) -> CleanGaps:
    """Gaps of clean costs (J,), and of an elite set of ``elites``, 0 for none."""
    return ordered_gaps(costs.sort().values.tolist(), elites)


def ordered_gaps(ordered: Sequence[float], elites: int) -> CleanGaps:
    """The same of clean costs in order, of which the lowest ``elites + 1``, and two, suffice."""
    return CleanGaps(
        top1=ordered[1] - ordered[0] if len(ordered) > 1 else math.inf,
        elite=_gap(ordered[elites], ordered[elites - 1]) if elites else None,
    )


def _gap(outside: float, inside: float) -> float:
    """0 where both are infeasible: a tie."""
    return outside - inside if inside < math.inf else 0.0


def broken_bounds(
    session: PlanningSession,
    clean: Tensor,
    perturbed: Tensor,
    weights: Tensor,
    certificates: Sequence[ViewCertificate],
    pool: Tensor,
) -> list[int]:
    """Candidates of each view that break a proposition of the paper: none, or the code is wrong.

    ``pool`` are the candidates. Two bounds are checked for each: the cost changes by at most b_j,
    and the distance of the rollout from the goal, held for all steps, by at most ACPC (Prop.
    target-free-error-drift, which holds for any observed future). Rollouts and certificates are
    those of ``certify_views``.
    """
    costs = costs_of(session, pool_cost(session, pool), clean, session.goal)
    horizon, dim = clean.shape[-2:]
    target = session.goal.expand(1, horizon, dim)
    errors = consistency.prediction_error(clean, target, weights)  # (J,)
    changed = consistency.prediction_error(perturbed, target, weights)  # (views, J)
    acpc = torch.from_numpy(np.stack([view.acpc for view in certificates]))  # (views, J)
    bound = consistency.drift_bound(acpc, errors, changed, horizon=horizon, dim=dim)
    broken = consistency.error_drift(errors, changed) > bound
    for row, view in enumerate(certificates):
        moved = (torch.from_numpy(view.perturbed_costs) - costs).abs()
        broken[row] |= moved > torch.from_numpy(view.bounds)
    return [int(count) for count in broken.sum(dim=-1)]


def _selections(certificate: cost_bounds.Certificate) -> list[SelectionCertificate]:
    columns = certificate.certified, certificate.margin
    pairs = zip(*(column.flatten().tolist() for column in columns), strict=True)
    return [SelectionCertificate(certified, margin) for certified, margin in pairs]
