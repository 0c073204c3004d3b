"""Certifies that a visual change cannot alter a planner's choice in a candidate pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from acpc.arrays import NDArray
from acpc.contract import CandidatePool, PoolCertificate, ViewCertificate
from torch import Tensor

from acpc_server.engine import pool_rows_per_call
from acpc_server.interactive.certificates import certified_severities, certify_views, may_change
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.interactive.pieces import (
    Measures,
    Rolled,
    choices_of,
    clean_gaps,
    costs_of,
    group_size,
    join_costs,
    join_measures,
    measure,
    pieces_of,
    pool_calls,
    pool_cost,
    share_clean,
)
from acpc_server.interactive.planning import check_pool
from acpc_server.numerics import PoolCost, consistency, cost_bounds, updates
from acpc_server.scheduling import RequestContext, Work


def certify_pool(
    opened: Moment | EncodedMoment,
    candidates: np.ndarray,
    context: RequestContext,
    given: CandidatePool | None = None,
) -> PoolCertificate:
    """Certify in this thread; raises as :func:`pool_work`, and as :meth:`DeviceClient.run`."""
    moment = opened.asked if isinstance(opened, EncodedMoment) else opened
    return moment.engine.run(pool_work(opened, candidates, context, given), context)


def pool_work(
    opened: Moment | EncodedMoment,
    candidates: np.ndarray,
    context: RequestContext,
    given: CandidatePool | None = None,
) -> Work[PoolCertificate]:
    """Prepare to bound and certify one pool (Prop. fixed-pool-certificates in the paper).

    ``candidates`` are action sequences, float32 (J, H, block width). A moment without latents is
    encoded first. The pool shares no device call, so the bits of the answer follow from the request
    alone. Equal candidates of equal offsets and marks are one choice.
    Raises InvalidArgument: The pool does not fit the moment or a limit; names the field;
    ResourceExhausted: It would be late. The work raises FailedPrecondition: A prediction is not
    finite.
    """
    moment = opened.asked if isinstance(opened, EncodedMoment) else opened
    check_pool(moment, candidates.shape)
    horizon, engine = candidates.shape[1], moment.engine
    pool = torch.from_numpy(candidates)
    weights = consistency.horizon_weights(moment.weights, horizon)  # (H,)
    cost = pool_cost(moment, pool, given)
    asked = _Request(opened, pool, weights, cost, choices_of(pool, given))
    rows = moment.histories * len(pool)
    most = pool_rows_per_call(engine.device.type, moment.card, horizon)
    most = min(most, group_size(moment, 1, horizon))
    calls, drawing = pool_calls(moment, rows, horizon), 0.0
    if isinstance(opened, Moment):
        drawing = opened.price(context, calls)
    else:
        context.price(calls)
    shape = moment.request.history.shape, candidates.shape
    return Work(
        "pool",
        (moment.mode, id(moment.checkpoint.model), *shape),
        asked,
        _measure,
        rows=asked.rows(most),
        max_rows=most,
        drawing=drawing,
        finish=partial(_certificate, asked, candidates, context, given),
    )


def _certificate(
    asked: _Request,
    candidates: np.ndarray,
    context: RequestContext,
    given: CandidatePool | None,
    measured: _Pool,
) -> PoolCertificate:
    encoded, order, pool = measured.moment, measured.order, asked.pool
    moment = encoded.asked
    views = tuple(replace(measured.views[row], **view._asdict()) for view, row in encoded.view_rows)
    top1 = [view.top1.certified for view in views]
    elite = [view.elite is not None and view.elite.certified for view in views]
    answer = PoolCertificate(
        clean_costs=measured.costs.numpy(),
        clean_winner=order[0],
        clean_elites=order[: moment.elite_count],
        views=views,
        top1_certified_fraction=sum(top1) / len(views),
        elite_certified_fraction=sum(elite) / len(views),
        certified_severities=certified_severities(moment.asked_views, top1=top1, elite=elite),
        receipt=moment.receipt(moment.selection, candidates, given, measured.program),
        clean_gaps=clean_gaps(measured.costs, moment.elite_count, asked.choices),
        softmax_mean=_softmax_mean(moment, measured, pool),
        top1_may_change=may_change(moment.asked_views, top1),
        elite_may_change=may_change(moment.asked_views, elite) if moment.elite_count else (),
        distinct_candidates=len(pool)
        if asked.choices is None
        else len(set(asked.choices.tolist())),
    )
    moment.tally.count_pool(answer, encoded.moved, encoded.motion, context)
    return answer


class _Request(NamedTuple):
    """A pool to measure."""

    opened: Moment | EncodedMoment
    pool: Tensor  # candidates, float32 (J, H, block width)
    weights: Tensor  # of the horizon, float64 (H,)
    cost: PoolCost | None  # None: the squared distance of the last step
    choices: Tensor | None  # of :func:`choices_of`

    def rows(self, most: int) -> int:
        """Return histories x candidates, and frames to encode as their share of ``most``."""
        moment = self.opened
        if isinstance(moment, EncodedMoment):
            return (1 + len(moment.views)) * len(self.pool)
        assert moment.encoder is not None  # noqa: S101 - it is to be encoded
        sources, model = moment.sources, moment.checkpoint.model
        frames = sources.frames / moment.encoder.frames_per_call(model, moment.request.history)
        return (1 + len(sources.views)) * len(self.pool) + math.ceil(frames * most)


class _Pool(NamedTuple):
    """A measured pool."""

    moment: EncodedMoment
    costs: Tensor  # clean, float64 (J,)
    order: tuple[int, ...]  # the elites, or the winner, of lowest clean cost first
    views: list[ViewCertificate]  # of the views that differ, each as view (0, row)
    program: str | None  # of the call's context


def _measure(requests: Sequence[_Request], context: RequestContext) -> list[_Pool]:
    """Measure the pool of the one request, a piece of candidates and a group of views at a time."""
    ((opened, pool, weights, cost, choices),) = requests
    encoded = opened if isinstance(opened, EncodedMoment) else opened.encoded(context)
    moment, k, (count, horizon) = encoded.asked, encoded.asked.elite_count, pool.shape[:2]
    histories = torch.cat([encoded.clean[None], encoded.views])
    goals = torch.cat([encoded.goal[None], encoded.goals])
    group = min(group_size(moment, count, horizon), len(histories))
    costs: list[Tensor] = []
    groups: list[list[Measures]] = [[] for _ in range(0, len(histories), group)]
    for piece in pieces_of(moment, group, count, horizon):
        part, own = pool[None, piece], cost and cost.of(piece)
        clean: Tensor | None = None
        given = (torch.split(each, group) for each in (histories, goals))
        for found, starts, ends in zip(groups, *given, strict=True):
            rollouts, others, moved = encoded.rollout(starts, part, context), starts, ends
            if clean is None:  # the clean history is the first
                clean, others, rollouts, moved = rollouts[0], starts[1:], rollouts[1:], ends[1:]
                costs.append(costs_of(moment, own, clean, encoded.goal))
            rollouts = share_clean(others, encoded.clean, rollouts, clean)
            found.append(measure(moment, Rolled(clean, rollouts, encoded.goal, moved), own))
    whole = join_costs(costs, choices)
    views = [
        view
        for found in groups
        for view in certify_views(moment, join_measures(found, choices), weights, k, pool)
    ]
    order = cost_bounds.elite_indices(whole, max(1, k)).tolist()
    return [_Pool(encoded, whole, tuple(order), views, context.program)]


def _softmax_mean(moment: Moment, measured: _Pool, pool: Tensor) -> NDArray[np.float64] | None:
    """Compute the softmax mean of the clean costs, over any elite set, where it is asked for."""
    if moment.temperature is None:
        return None
    elites = torch.tensor(measured.order) if moment.elite_count else None
    found = updates.softmax_mean(measured.costs, pool, moment.temperature, elites)
    mean: NDArray[np.float64] = found.numpy()
    return mean
