"""Certifies that a visual change cannot alter a planner's choice in a candidate pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from acpc.contract import CandidatePool, PoolCertificate, ViewCertificate
from torch import Tensor

from acpc_server.engine import pool_rows_per_call
from acpc_server.interactive.captured import certify_captured
from acpc_server.interactive.certificates import (
    certified_severities,
    certify_views,
    may_change,
    write_views,
)
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.interactive.pieces import (
    Measures,
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
from acpc_server.scheduling import CallKind, RequestContext, Work


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
    moment = opened if isinstance(opened, Moment) else opened.asked
    check_pool(moment, candidates.shape)
    count, horizon = candidates.shape[:2]
    pool = torch.from_numpy(candidates)
    weights = consistency.horizon_weights(moment.weights, horizon)  # (H,)
    cost, choices = pool_cost(moment, pool, given), choices_of(pool, given)
    asked = _Pool(opened, moment, pool, weights, cost, choices, context, given)
    most = pool_rows_per_call(moment.engine.device.type, moment.card, horizon)
    most = min(most, group_size(moment, 1, horizon))
    calls, drawing = pool_calls(moment, moment.histories * count, horizon), 0.0
    if isinstance(opened, Moment):
        drawing, sources = opened.price(context, calls), opened.sources
        # Frames to encode count as their share of a call.
        frames = opened.encoder.frames_per_call(moment.model, moment.request.history)
        rows = (1 + len(sources.views)) * count + math.ceil(sources.frames / frames * most)
    else:
        context.price(calls)
        rows = (1 + len(opened.views)) * count
    shapes = moment.request.history.shape, candidates.shape
    serving = moment.checkpoint.serving
    kind = CallKind("pool", moment.card.digest, moment.mode, shapes, most, serving)
    return Work(kind, None, asked.measure, rows, drawing, asked.certificate)


class _Measured(NamedTuple):
    """A measured pool."""

    moment: EncodedMoment
    costs: Tensor  # clean, float64 (J,)
    order: list[int]  # the elites, or the winner, of lowest clean cost first
    views: list[ViewCertificate]  # of the views that differ, each as view (0, row)
    program: str | None  # of the call's context


@dataclass(frozen=True)
class _Pool:
    """A pool of one request."""

    opened: Moment | EncodedMoment
    moment: Moment
    pool: Tensor  # candidates, float32 (J, H, block width)
    weights: Tensor  # of the horizon, float64 (H,)
    cost: PoolCost | None  # None: the squared distance of the last step
    choices: Tensor | None  # of :func:`choices_of`
    context: RequestContext
    given: CandidatePool | None

    def measure(self, _: Sequence[None], context: RequestContext) -> list[_Measured]:
        """Measure the pool in one computation where that is wanted, and else in pieces."""
        return [self._captured(context) or self._in_pieces(context)]

    def _captured(self, context: RequestContext) -> _Measured | None:
        """Measure the pool in one computation; None where it is no ordinary one, or none is."""
        ordinary = self.cost is None and self.choices is None
        found = certify_captured(self.opened, self.pool, context) if ordinary else None
        if found is None:
            return None
        encoded, costs, numbers = found
        order = cost_bounds.elite_indices(costs, max(1, self.moment.elite_count)).tolist()
        return _Measured(encoded, costs, order, write_views(numbers), context.program)

    def _in_pieces(self, context: RequestContext) -> _Measured:
        """Measure a piece of candidates and a group of views at a time."""
        moment, pool, opened = self.moment, self.pool, self.opened
        encoded = opened.encoded(context) if isinstance(opened, Moment) else opened
        count, horizon = pool.shape[:2]
        histories = torch.cat([encoded.clean[None], encoded.views])
        goals = torch.cat([encoded.goal[None], encoded.goals])
        group = min(group_size(moment, count, horizon), len(histories))
        costs: list[Tensor] = []
        groups: list[list[Measures]] = [[] for _ in range(0, len(histories), group)]
        for piece in pieces_of(moment, group, count, horizon):
            part, own = pool[None, piece], self.cost and self.cost.of(piece)
            clean: Tensor | None = None
            split = (torch.split(each, group) for each in (histories, goals))
            for found, starts, ends in zip(groups, *split, strict=True):
                rollouts, others, moved = encoded.rollout(starts, part, context), starts, ends
                if clean is None:  # the clean history is the first
                    clean, others, rollouts, moved = rollouts[0], starts[1:], rollouts[1:], ends[1:]
                    costs.append(costs_of(moment, own, clean, encoded.goal))
                rollouts = share_clean(others, encoded.clean, rollouts, clean)
                found.append(measure(encoded, own, clean, rollouts, moved))
        whole, k = join_costs(costs, self.choices), moment.elite_count
        views = [
            view
            for found in groups
            for view in certify_views(
                moment, join_measures(found, self.choices), self.weights, k, pool
            )
        ]
        order = cost_bounds.elite_indices(whole, max(1, k)).tolist()
        return _Measured(encoded, whole, order, views, context.program)

    def certificate(self, found: _Measured) -> PoolCertificate:
        """Make the answer, and count it."""
        moment, order, k = self.moment, found.order, self.moment.elite_count
        views = tuple(
            replace(found.views[row], spec_index=view.spec_index, draw=view.draw)
            for view, row in found.moment.view_rows
        )
        top1 = [view.top1.certified for view in views]
        elite = [view.elite is not None and view.elite.certified for view in views]
        mean = None  # of a softmax, over any elite set
        if moment.temperature is not None:
            elites = torch.tensor(order) if k else None
            mean = updates.softmax_mean(found.costs, self.pool, moment.temperature, elites).numpy()
        distinct = len(self.pool) if self.choices is None else len({*self.choices.tolist()})
        answer = PoolCertificate(
            clean_costs=found.costs.numpy(),
            clean_winner=order[0],
            clean_elites=tuple(order[:k]),
            views=views,
            top1_certified_fraction=sum(top1) / len(views),
            elite_certified_fraction=sum(elite) / len(views),
            certified_severities=certified_severities(moment.asked_views, top1=top1, elite=elite),
            receipt=moment.receipt(moment.selection, self.pool.numpy(), self.given, found.program),
            clean_gaps=clean_gaps(found.costs, k, self.choices),
            softmax_mean=mean,
            top1_may_change=may_change(moment.asked_views, top1),
            elite_may_change=may_change(moment.asked_views, elite) if k else (),
            distinct_candidates=distinct,
        )
        moment.tally.count_pool(answer, found.moment.shifts, self.context)
        return answer
