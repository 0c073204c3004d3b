"""Counts what was certified from one moment, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from acpc.contract import PairedPlan, PairedPlans, PerturbationSet, PoolCertificate, Views

from acpc_server.observe import Metrics
from acpc_server.perturb import series_name
from acpc_server.scheduling import Priority, RequestContext

# What the views that a caller sends as frames are counted as.
OWN_VIEWS = "explicit_views"


class Tally:
    """Counts the certificates of one moment by checkpoint and perturbation."""

    def __init__(self, metrics: Metrics, checkpoint: str, views: Views) -> None:
        names = [OWN_VIEWS]
        if isinstance(views, PerturbationSet):
            names = [series_name(spec) for spec in views.specs]
        self.shifts = tuple(metrics.shift(checkpoint, name) for name in names)
        self._metrics, self._pools = metrics, 0

    def count_pool(
        self,
        answer: PoolCertificate,
        shifts: Callable[[], tuple[list[float], float]],
        context: RequestContext,
    ) -> None:
        """Count a pool that a caller sent, its certificates and, of the first, its views' shifts.

        ``shifts`` gives how far each view of the answer moved the latents, and the motion from one
        clean frame to the next, 0 where none is known.
        """
        self._pools += 1
        if context.priority is not Priority.INTERACTIVE:
            return
        if self._pools == 1:
            moved, motion = shifts()
            for view, distance in zip(answer.views, moved, strict=True):
                if motion:
                    series = self._metrics.relative_shift.labels(*self.shifts[view.spec_index])
                    series.observe(distance / motion)
        elites, count = sorted(answer.clean_elites), len(answer.clean_elites)
        self._count_answer((view.elite or view.top1).certified for view in answer.views)
        for index, group in groupby(answer.views, attrgetter("spec_index")):
            views = [*group]
            winners = ((v.top1.certified, v.perturbed_winner != answer.clean_winner) for v in views)
            self._count(index, "top1", winners)
            # Whether each view has another elite set than the clean history.
            chosen = (v.perturbed_costs.argsort(kind="stable")[:count] for v in views if v.elite)
            others = (sorted(one.tolist()) != elites for one in chosen)
            granted = (v.elite.certified for v in views if v.elite is not None)
            self._count(index, "elite", zip(granted, others, strict=True))

    def count_plans(self, plans: PairedPlans, context: RequestContext) -> None:
        """Count the certificates of paired CEM runs, unless a study made them."""
        if context.priority is Priority.INTERACTIVE:
            self._count_answer(view.certified for view in plans.views)
            for index, group in groupby(plans.views, attrgetter("spec_index")):
                views: Sequence[PairedPlan] = [*group]
                found = ((view.certified, view.first_divergence is not None) for view in views)
                self._count(index, "plan", found)

    def _count_answer(self, certified: Iterable[bool]) -> None:
        outcome = "certified" if all(certified) else "denied"
        self._metrics.planning_calls.labels(self.shifts[0].checkpoint, outcome).inc()

    def _count(self, spec: int, certificate: str, found: Iterable[tuple[bool, bool]]) -> None:
        """Count certificates of a perturbation: whether each is granted, and a choice changes."""
        outcomes = Counter(
            "certified" if certified else "choice_changes" if changes else "bound_too_wide"
            for certified, changes in found
        )
        for outcome, times in outcomes.items():
            labels = *self.shifts[spec], certificate, outcome
            self._metrics.certificates.labels(*labels).inc(times)
