"""Certifies that a visual change cannot alter a planner's choice in a candidate pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from acpc import contract
from acpc.contract import (
    CertifiedSeverity,
    CleanGaps,
    PerturbationSet,
    PoolCertificate,
    SelectionCertificate,
    ViewCertificate,
    Views,
)
from torch import Tensor

from acpc_server.encoding import MAX_HORIZON, all_views, check_block_width
from acpc_server.errors import InvalidArgument
from acpc_server.interactive.planning import GROUP_STEPS, PlanningSession
from acpc_server.interactive.tally import count_pool
from acpc_server.numerics import (
    Proposal,
    consistency,
    cost_bounds,
    linear_quantile,
    pool_normals,
    sample_pool,
)
from acpc_server.perturb import resolve
from acpc_server.scheduling import RequestContext

# Candidates x views of one answer: six float64 values of each fit a message.
MAX_PAIRS = 2**20
QUANTILE = 0.90


class MeasuredPool(NamedTuple):
    """A pool with its certificates.

    Attributes:
        candidates: Action sequences, float32 (J, H, block width).
        clean: Their rollouts from the clean history, (J, H, dim).
        answer: The certificates.
    """

    candidates: np.ndarray
    clean: Tensor
    answer: PoolCertificate


def certify_pool(
    session: PlanningSession, candidates: np.ndarray, context: RequestContext
) -> MeasuredPool:
    """Bounds and certificates of one pool (Prop. fixed-pool-certificates in the paper).

    ``candidates`` are action sequences, float32 (J, H, block width).

    Raises:
        InvalidArgument: The pool does not fit the session or a limit; names the field.
        FailedPrecondition: A prediction is not finite.
        Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
    """
    with session.slot(context):
        check_pool(session, candidates.shape)
        k = session.elite_count
        weights = consistency.horizon_weights(session.weights, candidates.shape[1])  # (H,)
        pool = torch.from_numpy(candidates)
        histories = torch.cat([session.clean[None], session.views])  # (1 + views, h, dim)
        group = max(1, GROUP_STEPS // (pool.shape[0] * pool.shape[1]))
        first, *others = torch.split(histories, group)
        rollouts = session.rollout(first, pool[None], context)
        clean = rollouts[0]  # (J, H, dim)
        rollouts = session.share_clean(first[1:], rollouts[1:], clean)
        measured = certify_views(session, clean, rollouts, weights, k)
        for part in others:
            rollouts = session.share_clean(part, session.rollout(part, pool[None], context), clean)
            measured += certify_views(session, clean, rollouts, weights, k)
        views = tuple(replace(measured[row], **view._asdict()) for view, row in session.view_rows)
        costs = cost_bounds.goal_costs(clean[:, -1], session.goal, reduction=session.reduction)
        answer = PoolCertificate(
            clean_costs=costs.numpy(),
            clean_winner=int(costs.argmin()),
            clean_elites=tuple(cost_bounds.elite_indices(costs, k).tolist()) if k else (),
            views=views,
            top1_certified_fraction=sum(view.top1.certified for view in views) / len(views),
            elite_certified_fraction=sum(_holds(view.elite) for view in views) / len(views),
            certified_severities=certified_severities(
                session.asked_views,
                top1=[view.top1.certified for view in views],
                elite=[_holds(view.elite) for view in views],
            ),
            receipt=session.receipt(session.selection, candidates),
            clean_gaps=clean_gaps(costs, k),
        )
        session.pools += 1
        count_pool(session, answer, context)
        return MeasuredPool(candidates, clean, answer)


def draw_pool(session: PlanningSession, asked: contract.Proposal) -> np.ndarray:
    """The pool that a proposal stands for; it depends on the proposal and its seed only.

    Raises:
        InvalidArgument: The proposal does not fit the checkpoint, or asks for too much; names the
            field below ``proposal``, or the session's.
    """
    mean, std = asked.mean, asked.std
    check_block_width(session.card, mean.shape[1], "proposal.mean")
    if std.shape != mean.shape:
        raise InvalidArgument(
            "proposal.std.shape", f"found {list(std.shape)}, wanted the mean's {list(mean.shape)}"
        )
    # Before anything is sampled: a few bytes may ask for billions of candidates.
    try:
        check_pool(session, (asked.candidates, *mean.shape))
    except InvalidArgument as error:
        if error.field != "candidates.shape":
            raise
        field = "proposal.candidates"
        raise InvalidArgument(field, error.description, reason=error.reason) from error
    normals = pool_normals(
        asked.seed, 0, candidates=asked.candidates, horizon=mean.shape[0], width=mean.shape[1]
    )
    proposal = Proposal(torch.from_numpy(mean.copy()), torch.from_numpy(std.copy()))
    candidates = sample_pool(proposal, normals).numpy()
    if not np.isfinite(candidates).all():
        raise InvalidArgument("proposal.std.data", "a candidate overflows float32; lower it")
    return candidates


def certify_views(
    session: PlanningSession, clean: Tensor, perturbed: Tensor, weights: Tensor, elites: int
) -> list[ViewCertificate]:
    """Certificates of one pool under some views, as rolled out.

    Of clean rollouts (J, H, dim) and those of the same candidates from each view,
    (views, J, H, dim), with horizon weights (H,), and an elite set of ``elites``, 0 for none.
    Each row of ``perturbed`` has one certificate, which calls it view (0, row).
    """
    steps = consistency.step_distances(clean[None], perturbed)  # (views, J, H)
    acpc = consistency.acpc(steps, weights)  # (views, J)
    bounds = cost_bounds.pool_bounds(
        clean[:, -1],
        perturbed[:, :, -1],
        session.goal,
        reduction=session.reduction,
        endpoint_tolerance=session.endpoint_tolerance,
    )
    chained = cost_bounds.chained_bounds(bounds, acpc, float(weights[-1]))  # (views, J)
    excess = cost_bounds.excess_cost(bounds)
    top1 = _selections(cost_bounds.top1_certificate(bounds))
    elite: list[SelectionCertificate | None] = [None] * len(perturbed)
    if elites:
        elite[:] = _selections(cost_bounds.elite_certificate(bounds, elites))
    return [
        ViewCertificate(
            spec_index=0,
            draw=row,
            perturbed_costs=bounds.perturbed_costs[row].numpy(),
            displacements=bounds.displacements[row].numpy(),
            bounds=bounds.bounds[row].numpy(),
            chained_bounds=chained[row].numpy(),
            acpc_one_step=steps[row, :, 0].numpy(),
            acpc=acpc[row].numpy(),
            perturbed_winner=int(excess.perturbed_winner[row]),
            excess_cost=float(excess.excess[row]),
            excess_cost_bound=float(excess.bound[row]),
            top1=top1[row],
            elite=elite[row],
            acpc_one_step_q90=linear_quantile(steps[row, :, 0], QUANTILE),
            acpc_q90=linear_quantile(acpc[row], QUANTILE),
        )
        for row in range(len(perturbed))
    ]


def clean_gaps(costs: Tensor, elites: int) -> CleanGaps:
    """Gaps of clean costs (J,), and of an elite set of ``elites``, 0 for none."""
    ordered = costs.sort().values.tolist()
    return CleanGaps(
        top1=ordered[1] - ordered[0] if len(ordered) > 1 else math.inf,
        elite=ordered[elites] - ordered[elites - 1] if elites else None,
    )


def broken_bounds(
    session: PlanningSession,
    clean: Tensor,
    perturbed: Tensor,
    weights: Tensor,
    certificates: Sequence[ViewCertificate],
) -> list[int]:
    """Candidates of each view that break a proposition of the paper: none, or the code is wrong.

    Two bounds are checked for each: the cost changes by at most b_j (Prop. exact-cost-certificate),
    and the distance of the rollout from the goal, held for all steps, by at most ACPC (Prop.
    target-free-error-drift, which holds for any observed future). Rollouts and certificates are
    those of ``certify_views``.
    """
    costs = cost_bounds.goal_costs(clean[:, -1], session.goal, reduction=session.reduction)
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
    pairs = zip(certificate.certified.tolist(), certificate.margin.tolist(), strict=True)
    return [SelectionCertificate(certified, margin) for certified, margin in pairs]


def _holds(selection: SelectionCertificate | None) -> bool:
    return selection is not None and selection.certified


def check_pool(session: PlanningSession, shape: tuple[int, ...]) -> None:
    """Reject a pool, (J, H, block width), that does not fit the session or a limit."""
    count, horizon, width = shape
    if count < 1 or not 1 <= horizon <= MAX_HORIZON:
        raise InvalidArgument(
            "candidates.shape",
            f"{list(shape)}; give at least 1 candidate of 1 to {MAX_HORIZON} blocks",
        )
    check_block_width(session.card, width, "candidates")
    views, k = session.view_count, session.elite_count
    if count * views > MAX_PAIRS:
        raise InvalidArgument(
            "candidates.shape",
            f"{count} candidates under {views} views are over {MAX_PAIRS} results; send fewer",
            reason="TOO_MANY_RESULTS",
        )
    session.check_work(
        f"{count} candidates of {horizon} steps under the clean history and {views} views",
        count,
        (1 + views) * horizon,
        "candidates.shape",
    )
    if (goal := session.coverage_goal) is not None:
        drawn = goal.max_draws * len(session.drawn_views.specs)
        session.check_work(
            f"{count} candidates of {horizon} steps under the clean history, {views} views and up "
            f"to {drawn} draws",
            count,
            (1 + views + drawn) * horizon,
            "coverage_goal.max_draws",
        )
    if k >= count:
        raise InvalidArgument(
            "elite_count",
            f"is {k}, but the pool has {count} candidates; an elite certificate needs at least one "
            "candidate outside the elite set",
        )


def certified_severities(
    views: Views, *, top1: Sequence[bool], elite: Sequence[bool]
) -> tuple[CertifiedSeverity, ...]:
    """One per perturbation of the plan, in order of first appearance.

    The specs of one perturbation are its severity grid. A severity counts when every draw of it and
    of every milder one on the grid is certified; nothing is said between grid points.
    """
    if not isinstance(views, PerturbationSet):
        return ()
    grids: dict[str, list[tuple[float, bool, bool]]] = {}
    for view, winner, elites in zip(all_views(views), top1, elite, strict=True):
        spec = views.specs[view.spec_index]
        grids.setdefault(resolve(spec)[0].name, []).append((spec.severity, winner, elites))
    return tuple(
        CertifiedSeverity(
            kind,
            largest_severity([(severity, winner) for severity, winner, _ in grid]),
            largest_severity([(severity, elites) for severity, _, elites in grid]),
        )
        for kind, grid in grids.items()
    )


def largest_severity(found: Sequence[tuple[float, bool]]) -> float | None:
    """The largest severity up to which everything holds that was found, in any order."""
    largest = None
    for severity, group in groupby(sorted(found), key=lambda one: one[0]):
        if not all(holds for _, holds in group):
            break
        largest = severity
    return largest
