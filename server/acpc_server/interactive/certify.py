"""Certifies that a visual change cannot alter a planner's choice in a candidate pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from acpc.arrays import NDArray
from acpc.contract import CandidatePool, CleanGaps, PoolCertificate, ViewCertificate
from torch import Tensor

from acpc_server.encoding import predictions_not_finite
from acpc_server.engine import pool_rows_per_call
from acpc_server.errors import AcpcError
from acpc_server.interactive.certificates import (
    certified_severities,
    certify_pools,
    may_change,
    ordered_gaps,
)
from acpc_server.interactive.moment import EncodedMoment, Moment, encode_all
from acpc_server.interactive.pieces import (
    Rolls,
    group_size,
    join_costs,
    join_measures,
    pieces_of,
    pool_calls,
    pool_cost,
    room_for,
    shared_rows,
)
from acpc_server.interactive.planning import check_pool
from acpc_server.numerics import PoolCost, consistency, cost_bounds, updates
from acpc_server.scheduling import RequestContext


def certify_pool(
    opened: Moment | EncodedMoment,
    candidates: np.ndarray,
    context: RequestContext,
    given: CandidatePool | None = None,
) -> PoolCertificate:
    """Bound and certify one pool (Prop. fixed-pool-certificates in the paper).

    ``candidates`` are action sequences, float32 (J, H, block width). A moment without latents is
    encoded first. Pools of one shape and rule of selection that wait together are encoded, rolled
    out and certified together; an error is one request's alone. A pool of which something is
    ``given`` beside its candidates, an objective and a softmax update are each computed alone.
    Raises InvalidArgument: The pool does not fit the moment or a limit; names the field;
    FailedPrecondition: A prediction is not finite; Cancelled, DeadlineExceeded, ResourceExhausted,
    Unavailable: From the engine.
    """
    moment = opened.asked if isinstance(opened, EncodedMoment) else opened
    check_pool(moment, candidates.shape)
    horizon, engine = candidates.shape[1], moment.engine
    weights = consistency.horizon_weights(moment.weights, horizon)  # (H,)
    pool = torch.from_numpy(candidates)
    asked = _Request(opened, pool, weights, pool_cost(moment, pool, given))
    alone = asked.cost is not None or moment.temperature is not None
    rows = (1 + moment.view_count) * len(pool)
    most = pool_rows_per_call(engine.device.type, moment.card, horizon)
    most = min(most, group_size(moment, 1, horizon))
    kind = (
        moment.mode, id(moment.checkpoint.model), moment.request.history.shape,
        candidates.shape, moment.reduction, moment.request.endpoint_tolerance,
        moment.elite_count, moment.kept_elites, moment.weights, id(asked) if alone else None,
    )  # fmt: skip
    calls, drawing = pool_calls(moment, rows, horizon), 0.0
    if isinstance(opened, Moment):
        drawing = opened.price(context, calls)
    else:
        context.price(calls)
    with room_for(moment, rows, horizon, context):
        measured = engine.share(
            "pool", kind, asked, _measure, context,
            rows=asked.rows(most), max_rows=most, drawing=drawing,
        )  # fmt: skip
    encoded, order = measured.moment, measured.order
    views = tuple(replace(measured.views[row], **view._asdict()) for view, row in encoded.view_rows)
    top1 = [view.top1.certified for view in views]
    elite = [view.elite is not None and view.elite.certified for view in views]
    answer = PoolCertificate(
        clean_costs=measured.costs,
        clean_winner=order[0],
        clean_elites=order[: moment.elite_count],
        views=views,
        top1_certified_fraction=sum(top1) / len(views),
        elite_certified_fraction=sum(elite) / len(views),
        certified_severities=certified_severities(moment.asked_views, top1=top1, elite=elite),
        receipt=moment.receipt(moment.selection, candidates, given),
        clean_gaps=measured.gaps,
        softmax_mean=_softmax_mean(moment, measured, pool),
        top1_may_change=may_change(moment.asked_views, top1),
        elite_may_change=may_change(moment.asked_views, elite) if moment.elite_count else (),
    )
    moment.tally.count_pool(answer, encoded.moved, encoded.motion, context)
    return answer


class _Request(NamedTuple):
    """One request of a device call that several share."""

    moment: Moment | EncodedMoment
    pool: Tensor  # candidates, float32 (J, H, block width)
    weights: Tensor  # of the horizon, float64 (H,)
    cost: PoolCost | None  # of a request that shares no call

    def rows(self, most: int) -> int:
        """Return histories x candidates, and frames to encode as their share of ``most``."""
        moment = self.moment
        if isinstance(moment, EncodedMoment):
            return (1 + len(moment.views)) * len(self.pool)
        assert moment.encoder is not None  # noqa: S101 - it is to be encoded
        sources, model = moment.sources, moment.checkpoint.model
        frames = sources.frames / moment.encoder.frames_per_call(model, moment.request.history)
        return (1 + len(sources.views)) * len(self.pool) + math.ceil(frames * most)


class _Pool(NamedTuple):
    """A measured pool."""

    moment: EncodedMoment
    costs: np.ndarray  # clean, (J,)
    order: tuple[int, ...]  # candidates of lowest clean cost, at least the elites
    gaps: CleanGaps
    views: list[ViewCertificate]  # of the views that differ, each as view (0, row)


def _measure(asked: Sequence[_Request], context: RequestContext) -> list[_Pool | AcpcError]:
    """Measure pools of some moments, of one shape and one rule of selection."""
    outcomes: dict[int, _Pool | AcpcError] = {}
    alike: dict[int, list[int]] = {}  # by the number of views that differ
    encoded = encode_all([one.moment for one in asked], context)
    for place, one in enumerate(encoded):
        if isinstance(one, AcpcError):
            outcomes[place] = one
        else:
            alike.setdefault(len(one.views), []).append(place)
    for places in alike.values():
        moments = [one for one in (encoded[at] for at in places) if isinstance(one, EncodedMoment)]
        found = _measure_alike(moments, [asked[place] for place in places], context)
        outcomes.update(zip(places, found, strict=True))
    return [outcomes[place] for place in range(len(asked))]


def _measure_alike(
    moments: Sequence[EncodedMoment], asked: Sequence[_Request], context: RequestContext
) -> list[_Pool | AcpcError]:
    """Measure pools under as many views each; there is one where it is not rolled out whole."""
    first, k = moments[0].asked, moments[0].asked.elite_count
    _, pool, weights, cost = asked[0]
    rolls = Rolls.of(moments, [one.pool for one in asked])
    pieces = pieces_of(first, len(asked) * rolls.group, len(pool), pool.shape[1])
    rows = shared_rows(pieces, pool)
    found = [rolls.piece(piece, cost and cost.of(piece), context) for piece in pieces]
    certificates: list[list[ViewCertificate]] = [[] for _ in asked]
    for parts in zip(*(piece.measures for piece in found), strict=True):  # group by group
        each = certify_pools(first, join_measures(parts, rows), weights, k, pool)
        certificates = [[*a, *b] for a, b in zip(certificates, each, strict=True)]
    costs = join_costs([piece.costs for piece in found], rows)  # (pools, J)
    lowest = min(max(2, k + 1), costs.shape[1])
    order = cost_bounds.elite_indices(costs, lowest)
    gaps = [ordered_gaps(row, k) for row in costs.gather(1, order).tolist()]
    orders = map(tuple, order.tolist())
    measured = map(_Pool, moments, costs.numpy(), orders, gaps, certificates)
    good = torch.stack([piece.finite for piece in found]).all(dim=0).tolist()
    return [
        one if whole else predictions_not_finite()
        for one, whole in zip(measured, good, strict=True)
    ]


def _softmax_mean(moment: Moment, measured: _Pool, pool: Tensor) -> NDArray[np.float64] | None:
    """Compute the softmax mean of the clean costs, over any elite set, where it is asked for."""
    if moment.temperature is None:
        return None
    k = moment.elite_count
    elites = torch.tensor(measured.order[:k]) if k else None
    costs = torch.from_numpy(measured.costs)
    found = updates.softmax_mean(costs, pool, moment.temperature, elites)
    mean: NDArray[np.float64] = found.numpy()
    return mean
