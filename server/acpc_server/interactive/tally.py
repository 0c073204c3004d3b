"""Tells the metrics what certificates say and what they rest on, by checkpoint and perturbation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

import torch
from acpc.contract import (
    CoverageStatement,
    PairedPlan,
    PairedPlans,
    PoolCertificate,
    ViewCertificate,
)

from acpc_server.interactive.drift import Signals
from acpc_server.interactive.planning import PlanningSession
from acpc_server.numerics import consistency, cost_bounds
from acpc_server.observe import Shift
from acpc_server.scheduling import Priority, RequestContext


def count_pool(session: PlanningSession, answer: PoolCertificate, context: RequestContext) -> None:
    """Count the certificates of a pool that a caller sent, with margins and ACPC."""
    if context.priority is not Priority.INTERACTIVE:
        return
    metrics, gaps = session.metrics, answer.clean_gaps
    gap, elite_gap = (gaps.top1, gaps.elite) if gaps else (None, None)
    if session.pools == 1:
        _observe_session(session, answer, gap)
    elites = sorted(answer.clean_elites)
    for shift, views in _by_shift(session, answer.views):
        metrics.observe_acpc(shift, [view.acpc_q90 for view in views])
        winners = [(v.top1.certified, v.perturbed_winner != answer.clean_winner) for v in views]
        _count(session, shift, "top1", winners)
        metrics.observe_margins(shift, "top1", _in_gaps([v.top1.margin for v in views], gap))
        pairs = [(view, view.elite) for view in views if view.elite is not None]
        found = ((e.certified, not e.certified and _elites(view, elites)) for view, e in pairs)
        _count(session, shift, "elite", found)
        margins = _in_gaps([elite.margin for _, elite in pairs], elite_gap)
        metrics.observe_margins(shift, "elite", margins)


def _observe_session(session: PlanningSession, answer: PoolCertificate, gap: float | None) -> None:
    """Record how far views moved the latents, and have the first draws watched for drift."""
    moved = consistency.encoder_shift(session.clean[None], session.views).tolist()  # (views,)
    shifted = [moved[row] for _, row in session.view_rows]
    for view, shift in zip(answer.views, shifted, strict=True):
        labels = session.shifts[view.spec_index]
        session.metrics.observe_encoder_shifts(labels, [shift])
        if session.drift is not None and view.draw == 0:
            used = 1 - view.top1.margin / gap if gap else math.inf
            signals = Signals(shift, view.acpc_q90, used)
            session.drift.observe(labels, session.card.digest, signals)


def count_statements(session: PlanningSession, statements: Iterable[CoverageStatement]) -> None:
    """Count what was said of all draws."""
    for statement in statements:
        shift = session.shifts[statement.spec_index]
        for name, finding in (("top1", statement.top1), ("elite", statement.elite)):
            if finding is not None:
                session.metrics.count_statement(shift, name, finding.outcome.name.lower())


def count_plans(session: PlanningSession, plans: PairedPlans, context: RequestContext) -> None:
    """Count the certificates of paired CEM runs, unless a study made them."""
    if context.priority is not Priority.INTERACTIVE:
        return
    for shift, views in _by_shift(session, plans.views):
        found = ((view.certified, view.first_divergence is not None) for view in views)
        _count(session, shift, "plan", found)


T = TypeVar("T", ViewCertificate, PairedPlan)


def _by_shift(session: PlanningSession, views: Sequence[T]) -> Iterator[tuple[Shift, list[T]]]:
    for index, group in groupby(views, attrgetter("spec_index")):
        yield session.shifts[index], list(group)


def _in_gaps(margins: Sequence[float], gap: float | None) -> list[float]:
    """Margins in units of the clean gap; none where it is no unit, as with a single candidate."""
    return [m / gap for m in margins] if gap is not None and 0 < gap < math.inf else []


def _elites(view: ViewCertificate, clean: list[int]) -> bool:
    """Whether the view has another elite set than the clean history."""
    costs = torch.from_numpy(view.perturbed_costs)
    return bool(cost_bounds.elite_indices(costs, len(clean)).sort().values.tolist() != clean)


def _count(
    session: PlanningSession, shift: Shift, certificate: str, found: Iterable[tuple[bool, bool]]
) -> None:
    outcomes = Counter(
        "certified" if certified else "choice_changes" if changes else "bound_too_wide"
        for certified, changes in found
    )
    for outcome, times in outcomes.items():
        session.metrics.count_certificates(shift, certificate, outcome, times)
