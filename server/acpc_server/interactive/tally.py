"""Counts what was certified from one moment, for the metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from acpc.contract import (
    PairedPlan,
    PairedPlans,
    PerturbationSet,
    PoolCertificate,
    ViewCertificate,
    Views,
)
from prometheus_client import Histogram
from torch import Tensor

from acpc_server.engine import CachedCheckpoint
from acpc_server.observe import Metrics, Shift
from acpc_server.perturb import series_name
from acpc_server.scheduling import Priority, RequestContext

# What the views that a caller sends as frames are counted as.
OWN_VIEWS = "explicit_views"
T = TypeVar("T", ViewCertificate, PairedPlan)


class Tally:
    """Counts the certificates of one moment by checkpoint and perturbation."""

    def __init__(self, metrics: Metrics, checkpoint: CachedCheckpoint, views: Views) -> None:
        names = [OWN_VIEWS]
        if isinstance(views, PerturbationSet):
            names = [series_name(spec) for spec in views.specs]
        self.shifts = tuple(metrics.shift(checkpoint.name, name) for name in names)
        self._checkpoint = self.shifts[0].checkpoint
        self.pools = 0
        self._metrics = metrics

    def count_pool(
        self, answer: PoolCertificate, moved: Tensor, motion: float, context: RequestContext
    ) -> None:
        """Count a pool; where a caller sent it, record its certificates, margins and ACPC.

        ``moved`` is how far each view of the answer moved the latents, (views,); ``motion`` that
        from one clean frame to the next, 0 where none is known.
        """
        self.pools += 1
        if context.priority is not Priority.INTERACTIVE:
            return
        metrics, gaps = self._metrics, answer.clean_gaps
        gap, elite_gap = (gaps.top1, gaps.elite) if gaps else (None, None)
        if self.pools == 1:
            self._observe_views(answer, moved.tolist(), motion)
        certified = [(view.elite or view.top1).certified for view in answer.views]
        self._count_answer(all(certified))
        elites = sorted(answer.clean_elites)
        for shift, views in self._by_shift(answer.views):
            _observe(metrics.acpc.labels(*shift), [view.acpc_q90 for view in views])
            winners = [(v.top1.certified, v.perturbed_winner != answer.clean_winner) for v in views]
            self._count(shift, "top1", winners)
            margins = _in_gaps([view.top1.margin for view in views], gap)
            _observe(metrics.margin.labels(*shift, "top1"), margins)
            pairs = [(view, view.elite) for view in views if view.elite is not None]
            found = ((e.certified, not e.certified and _differs(view, elites)) for view, e in pairs)
            self._count(shift, "elite", found)
            margins = _in_gaps([elite.margin for _, elite in pairs], elite_gap)
            _observe(metrics.margin.labels(*shift, "elite"), margins)

    def count_plans(self, plans: PairedPlans, context: RequestContext) -> None:
        """Count the certificates of paired CEM runs, unless a study made them."""
        if context.priority is Priority.INTERACTIVE:
            self._count_answer(all(view.certified for view in plans.views))
            for shift, views in self._by_shift(plans.views):
                found = ((view.certified, view.first_divergence is not None) for view in views)
                self._count(shift, "plan", found)

    def _observe_views(
        self, answer: PoolCertificate, moved: Sequence[float], motion: float
    ) -> None:
        """Record how far views moved the latents, by themselves and over the clean motion."""
        for view, distance in zip(answer.views, moved, strict=True):
            labels = self.shifts[view.spec_index]
            self._metrics.encoder_shift.labels(*labels).observe(distance)
            if motion:
                self._metrics.relative_shift.labels(*labels).observe(distance / motion)

    def _count_answer(self, certified: bool) -> None:
        outcome = "certified" if certified else "denied"
        self._metrics.planning_calls.labels(self._checkpoint, outcome).inc()

    def _by_shift(self, views: Sequence[T]) -> Iterator[tuple[Shift, list[T]]]:
        for index, group in groupby(views, attrgetter("spec_index")):
            yield self.shifts[index], list(group)

    def _count(self, shift: Shift, certificate: str, found: Iterable[tuple[bool, bool]]) -> None:
        outcomes = Counter(
            "certified" if certified else "choice_changes" if changes else "bound_too_wide"
            for certified, changes in found
        )
        for outcome, times in outcomes.items():
            self._metrics.certificates.labels(*shift, certificate, outcome).inc(times)


def _observe(series: Histogram, values: Iterable[float]) -> None:
    for value in values:
        series.observe(value)


def _in_gaps(margins: Sequence[float], gap: float | None) -> list[float]:
    """Scale margins to the clean gap; none where it is no unit, as with a single candidate."""
    return [m / gap for m in margins] if gap is not None and 0 < gap < math.inf else []


def _differs(view: ViewCertificate, clean: list[int]) -> bool:
    """Whether the view has another elite set than the clean history."""
    elites = view.perturbed_costs.argsort(kind="stable")[: len(clean)]
    return sorted(elites.tolist()) != clean
