"""Certifies that a visual change cannot alter a planner's choice in a candidate pool."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from acpc import contract
from acpc.contract import (
    CandidatePool,
    CertifiedSeverity,
    CleanGaps,
    PerturbationSet,
    PoolCertificate,
    SelectionCertificate,
    ViewCertificate,
    Views,
)
from numpy.typing import NDArray
from torch import Tensor

from acpc_server.encoding import (
    MAX_HORIZON,
    all_views,
    check_block_width,
    check_latents,
    predictions_not_finite,
)
from acpc_server.engine import pool_rows_per_call
from acpc_server.errors import AcpcError, InvalidArgument
from acpc_server.interactive.certificates import certify_pools, ordered_gaps
from acpc_server.interactive.costs import pool_cost
from acpc_server.interactive.pieces import (
    Rolls,
    check_held,
    group_size,
    join_costs,
    join_measures,
    pieces_of,
    room_for,
    shared_rows,
)
from acpc_server.interactive.planning import PlanningSession, encode_all
from acpc_server.interactive.tally import count_pool
from acpc_server.numerics import (
    PoolCost,
    Proposal,
    consistency,
    cost_bounds,
    pool_normals,
    sample_pool,
    updates,
)
from acpc_server.perturb import resolve
from acpc_server.scheduling import RequestContext

# Candidates x views of one answer: six float64 values of each fit a message.
MAX_PAIRS = 2**20


class MeasuredPool(NamedTuple):
    """A pool with its certificates.

    Attributes:
        candidates: Action sequences, float32 (J, H, block width).
        clean: Their rollouts from the clean history, (J, steps, dim): the last step, or all where
            there is another cost; only for a session with a coverage goal, which reads them again.
        answer: The certificates.
        cost: What they cost; None: the squared distance of the last step.
    """

    candidates: np.ndarray
    clean: Tensor | None
    answer: PoolCertificate
    cost: PoolCost | None


def certify_pool(
    session: PlanningSession,
    candidates: np.ndarray,
    context: RequestContext,
    said: CandidatePool | None = None,
) -> MeasuredPool:
    """Bounds and certificates of one pool (Prop. fixed-pool-certificates in the paper).

    ``candidates`` are action sequences, float32 (J, H, block width). A session without latents is
    encoded first. Pools of one shape and rule of selection that wait together are encoded, rolled
    out and certified together; an error is one request's alone. What is ``said`` of candidates, an
    objective and a softmax update are each computed alone.

    Raises:
        InvalidArgument: The pool does not fit the session or a limit; names the field.
        FailedPrecondition: A prediction is not finite.
        Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
    """
    check_pool(session, candidates.shape)
    horizon = candidates.shape[1]
    weights = consistency.horizon_weights(session.weights, horizon)  # (H,)
    pool = torch.from_numpy(candidates)
    asked = _Asked(session, pool, weights, pool_cost(session, pool, said))
    alone = object() if asked.cost is not None or session.temperature is not None else None
    engine, rule = session.engine, (session.reduction, session.endpoint_tolerance)
    rows = (1 + session.view_count) * len(pool)
    most = pool_rows_per_call(engine.device.type, session.card, horizon)
    most = min(most, group_size(session, 1, horizon))
    kind = (
        session.mode, id(session.checkpoint.model), session.request.history.shape,
        candidates.shape, *rule, session.elite_count, session.kept_elites, session.weights, alone,
    )  # fmt: skip
    with room_for(session, rows, horizon, context):
        measured = engine.share(
            "pool", kind, asked, _measure, context, rows=asked.rows(most), max_rows=most
        )
    views = tuple(replace(measured.views[row], **view._asdict()) for view, row in session.view_rows)
    top1, elite = [view.top1.certified for view in views], [_holds(view.elite) for view in views]
    answer = PoolCertificate(
        clean_costs=measured.costs,
        clean_winner=measured.order[0],
        clean_elites=measured.order[: session.elite_count],
        views=views,
        top1_certified_fraction=sum(top1) / len(views),
        elite_certified_fraction=sum(elite) / len(views),
        certified_severities=certified_severities(session.asked_views, top1=top1, elite=elite),
        receipt=session.receipt(session.selection, candidates, said),
        clean_gaps=measured.gaps,
        softmax_mean=_softmax_mean(session, measured, pool),
    )
    session.pools += 1
    count_pool(session, answer, context)
    return MeasuredPool(candidates, measured.clean, answer, asked.cost)


class _Asked(NamedTuple):
    """What a request brings to the device call that it shares.

    Attributes:
        session: Encoded or not.
        pool: The candidates, float32 (J, H, block width).
        weights: Horizon weights, float64 (H,).
        cost: What candidates cost, of a request that shares no call; None: the squared distance.
    """

    session: PlanningSession
    pool: Tensor
    weights: Tensor
    cost: PoolCost | None

    def rows(self, most: int) -> int:
        """Histories x candidates, and frames to encode as their share of a call of ``most``."""
        session = self.session
        views, frames = session.views if session.encoded else session.sources.views, 0.0
        if not session.encoded:
            size = session.encoder.frames_per_call(
                session.checkpoint.model, session.request.history
            )
            frames = session.sources.frames / size
        return (1 + len(views)) * len(self.pool) + math.ceil(frames * most)


class _Measured(NamedTuple):
    """What a pool is found to be.

    Attributes:
        clean: As of :class:`MeasuredPool`.
        costs: Clean costs, (J,).
        order: The candidates of lowest clean cost, at least the elites, in order.
        gaps: Of the clean costs.
        views: Certificates of the views that differ, each as view (0, row).
    """

    clean: Tensor | None
    costs: np.ndarray
    order: tuple[int, ...]
    gaps: CleanGaps
    views: list[ViewCertificate]


def _measure(asked: Sequence[_Asked], context: RequestContext) -> list[_Measured | AcpcError]:
    """The pools of some sessions, of one shape and one rule of selection."""
    outcomes: dict[int, _Measured | AcpcError] = {}
    alike: dict[int, list[int]] = {}  # by the number of views that differ
    for place, error in enumerate(encode_all([one.session for one in asked], context)):
        if error is None:
            alike.setdefault(len(asked[place].session.views), []).append(place)
        else:
            outcomes[place] = error
    for places in alike.values():
        found = _measure_alike([asked[place] for place in places], context)
        outcomes.update(zip(places, found, strict=True))
    return [outcomes[place] for place in range(len(asked))]


def _measure_alike(asked: Sequence[_Asked], context: RequestContext) -> list[_Measured | AcpcError]:
    """Pools under as many views each, of which there is one where they are not rolled out whole."""
    sessions, pools, weights, (cost, *_) = [list(column) for column in zip(*asked, strict=True)]
    first, k, pool = sessions[0], sessions[0].elite_count, pools[0]
    rolls = Rolls.of(sessions, pools)
    pieces = pieces_of(first, len(asked) * rolls.group, len(pool), pool.shape[1])
    rows = shared_rows(pieces, pool)
    found = [rolls.piece(piece, cost and cost.of(piece), context) for piece in pieces]
    certificates: list[list[ViewCertificate]] = [[] for _ in asked]
    for parts in zip(*(piece.measures for piece in found), strict=True):  # group by group
        each = certify_pools(first, join_measures(parts, rows), weights[0], k, pool)
        certificates = [[*a, *b] for a, b in zip(certificates, each, strict=True)]
    costs = join_costs([piece.costs for piece in found], rows)  # (pools, J)
    lowest = min(max(2, k + 1), costs.shape[1])
    order = cost_bounds.elite_indices(costs, lowest)
    gaps = [ordered_gaps(row, k) for row in costs.gather(1, order).tolist()]
    orders = map(tuple, order.tolist())
    kept: list[Tensor] | list[None] = [None] * len(asked)
    if first.coverage_goal is not None:
        kept = [*torch.cat([piece.clean for piece in found], dim=1)]
    measured = map(_Measured, kept, costs.numpy(), orders, gaps, certificates)
    good = torch.stack([piece.finite for piece in found]).all(dim=0).tolist()
    return [
        one if whole else predictions_not_finite()
        for one, whole in zip(measured, good, strict=True)
    ]


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


def _softmax_mean(
    session: PlanningSession, measured: _Measured, pool: Tensor
) -> NDArray[np.float64] | None:
    """The softmax mean of the clean costs, over the elite set where there is one, if asked for."""
    if session.temperature is None:
        return None
    k = session.elite_count
    elites = torch.tensor(measured.order[:k]) if k else None
    costs = torch.from_numpy(measured.costs)
    mean: NDArray[np.float64] = updates.softmax_mean(
        costs, pool, session.temperature, elites
    ).numpy()
    return mean


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
    if session.temperature is not None and views * horizon * width > MAX_PAIRS:
        raise InvalidArgument(
            "temperature",
            f"means of {horizon} x {width} actions under {views} views are over {MAX_PAIRS} "
            "results; send fewer views",
            reason="TOO_MANY_RESULTS",
        )
    session.check_work(
        f"{count} candidates of {horizon} steps under the clean history and {views} views",
        count,
        (1 + views) * horizon,
        "candidates.shape",
    )
    check_held(session, horizon, "candidates.shape")
    if (goal := session.coverage_goal) is not None:
        kept = count * (horizon if session.request.objective else 1)
        what = f"the clean predictions of {count} candidates, which draws are compared with,"
        check_latents(
            session.engine, session.checkpoint.model, session.mode, kept, "candidates.shape", what
        )
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
    for severity, group in itertools.groupby(sorted(found), key=lambda one: one[0]):
        if not all(holds for _, holds in group):
            break
        largest = severity
    return largest
