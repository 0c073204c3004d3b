"""Certificates of pools that are rolled out, of many at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import (
    CertifiedSeverity,
    CleanGaps,
    DrawsBound,
    PerturbationSet,
    SelectionCertificate,
    SoftmaxBounds,
    ViewCertificate,
    Views,
    grids,
)
from jaxtyping import Float, Float64
from torch import Tensor

from acpc_server.encoding import all_views
from acpc_server.evidence import most_uncertified
from acpc_server.interactive.moment import Moment
from acpc_server.interactive.pieces import Measures, chained, softmax_bounds
from acpc_server.numerics import consistency, cost_bounds, linear_quantiles, updates
from acpc_server.perturb import is_stochastic

QUANTILE = 0.90


def certify_pools(
    moment: Moment, measures: Measures, weights: Tensor, elites: int, pool: Tensor
) -> list[list[ViewCertificate]]:
    """Certify some pools under each of their views, with horizon weights (H,).

    There is an elite set of ``elites``, 0 for none. With a softmax update there is one pool,
    ``pool``, (J, H, block width). A certificate calls its view (0, row).
    """
    columns = _Columns.of(moment, measures, weights, elites, pool)
    count, views = measures.steps.shape[:2]
    rows = [columns.certificate(place, place % views) for place in range(count * views)]
    return [rows[at * views : (at + 1) * views] for at in range(count)]


@dataclass(frozen=True)
class _Columns:
    """What is found of some pools under their views, pool by pool and view by view."""

    perturbed_costs: NDArray[np.float64]  # these and the next five (pools x views, J)
    displacements: NDArray[np.float64]
    bounds: NDArray[np.float64]
    chained_bounds: NDArray[np.float64]
    acpc_one_step: NDArray[np.float64]
    acpc: NDArray[np.float64]
    perturbed_winner: list[int]
    excess_cost: list[float]
    excess_cost_bound: list[float]
    top1: list[SelectionCertificate]
    elite: list[SelectionCertificate] | None
    kept: list[SelectionCertificate] | None
    softmax: list[SoftmaxBounds] | None
    acpc_one_step_q90: Sequence[float]
    acpc_q90: Sequence[float]

    @staticmethod
    def of(
        moment: Moment, measures: Measures, weights: Tensor, elites: int, pool: Tensor
    ) -> _Columns:
        """Certify what was measured."""
        bounds, steps = measures
        distances = consistency.acpc(steps, weights)  # (pools, views, J)
        acpc, one_step = distances.flatten(0, 1), steps[..., 0].contiguous().flatten(0, 1)
        excess = cost_bounds.excess_cost(bounds)
        kept = moment.kept_elites
        return _Columns(
            perturbed_costs=_rows(bounds.perturbed_costs),
            displacements=_rows(bounds.displacements),
            bounds=_rows(bounds.bounds),
            chained_bounds=_rows(chained(bounds, distances, weights)),
            acpc_one_step=one_step.numpy(),
            acpc=acpc.numpy(),
            perturbed_winner=excess.perturbed_winner.flatten().tolist(),
            excess_cost=excess.excess.flatten().tolist(),
            excess_cost_bound=excess.bound.flatten().tolist(),
            top1=_selections(cost_bounds.top1_certificate(bounds)),
            elite=_selections(cost_bounds.elite_certificate(bounds, elites)) if elites else None,
            kept=_selections(updates.kept_certificate(bounds, elites, kept)) if kept else None,
            softmax=softmax_bounds(moment, bounds, pool, elites),
            acpc_one_step_q90=linear_quantiles(one_step, QUANTILE) if len(acpc) else [],
            acpc_q90=linear_quantiles(acpc, QUANTILE) if len(acpc) else [],
        )

    def certificate(self, at: int, view: int) -> ViewCertificate:
        """Make the certificate of a place, which calls its view (0, ``view``)."""
        return ViewCertificate(
            spec_index=0,
            draw=view,
            perturbed_costs=self.perturbed_costs[at],
            displacements=self.displacements[at],
            bounds=self.bounds[at],
            chained_bounds=self.chained_bounds[at],
            acpc_one_step=self.acpc_one_step[at],
            acpc=self.acpc[at],
            perturbed_winner=self.perturbed_winner[at],
            excess_cost=self.excess_cost[at],
            excess_cost_bound=self.excess_cost_bound[at],
            top1=self.top1[at],
            elite=self.elite[at] if self.elite else None,
            acpc_one_step_q90=self.acpc_one_step_q90[at],
            acpc_q90=self.acpc_q90[at],
            kept=self.kept[at] if self.kept else None,
            softmax=self.softmax[at] if self.softmax else None,
        )


def _rows(values: Tensor) -> NDArray[np.float64]:
    """Put (pools, views, J) into rows, (pools x views, J)."""
    found: NDArray[np.float64] = values.flatten(0, 1).numpy()
    return found


def ordered_gaps(ordered: Sequence[float], elites: int) -> CleanGaps:
    """Return the gaps of clean costs in ascending order, of an elite set of ``elites`` too.

    Of the costs the lowest ``elites + 1``, and two, suffice.
    """
    elite = None
    if elites:  # 0 where both are infeasible: a tie
        inside, outside = ordered[elites - 1], ordered[elites]
        elite = outside - inside if inside < math.inf else 0.0
    return CleanGaps(ordered[1] - ordered[0] if len(ordered) > 1 else math.inf, elite)


def broken_bounds(
    goal: Float[Tensor, "dim"],
    clean: Float[Tensor, "j horizon dim"],
    perturbed: Float[Tensor, "views j horizon dim"],
    weights: Tensor,
    measures: Measures,
    costs: Float64[Tensor, "j"],
) -> list[int]:
    """Count the candidates of each view that break a proposition: none, or the code is wrong.

    Two bounds are checked for each: its cost, from the clean history ``costs``, changes by at most
    b_j, and the distance of the rollout from the goal, held for all steps, by at most ACPC (Prop.
    target-free-error-drift, which holds for any observed future). ``measures`` are of these
    rollouts of one pool.
    """
    horizon, dim = clean.shape[-2:]
    target = goal.expand(1, horizon, dim)
    errors = consistency.prediction_error(clean, target, weights)  # (J,)
    changed = consistency.prediction_error(perturbed, target, weights)  # (views, J)
    bounds, acpc = measures.bounds, consistency.acpc(measures.steps[0], weights)  # (views, J)
    bound = consistency.drift_bound(acpc, errors, changed, horizon=horizon, dim=dim)
    broken = consistency.error_drift(errors, changed) > bound
    moved = (bounds.perturbed_costs - costs).abs()
    broken |= (moved > bounds.bounds).reshape(broken.shape)
    return [int(count) for count in broken.sum(dim=-1)]


def certified_severities(
    views: Views, *, top1: Sequence[bool], elite: Sequence[bool]
) -> tuple[CertifiedSeverity, ...]:
    """Return one per perturbation of the plan, in order of first appearance.

    The specs of one perturbation are its severity grid. A severity counts when every draw of it and
    of every milder one on the grid is certified; between grid points nothing is known.
    """
    if not isinstance(views, PerturbationSet):
        return ()
    found: dict[str, list[tuple[float, bool, bool]]] = {}
    points = grids(views.specs)
    for view, winner, elites in zip(all_views(views), top1, elite, strict=True):
        name, severity = points[view.spec_index]
        if severity is not None:
            found.setdefault(name, []).append((severity, winner, elites))
    return tuple(
        CertifiedSeverity(
            kind,
            largest_severity([(severity, winner) for severity, winner, _ in grid]),
            largest_severity([(severity, elites) for severity, _, elites in grid]),
        )
        for kind, grid in found.items()
    )


def may_change(views: Views, certified: Sequence[bool]) -> tuple[DrawsBound, ...]:
    """Bound, per random perturbation, the share of draws whose choice is not ``certified``."""
    if not isinstance(views, PerturbationSet):
        return ()
    found = []
    for index, spec in enumerate(views.specs):
        if not spec.changes_nothing and is_stochastic(spec):
            denied = certified[index * views.draws : (index + 1) * views.draws].count(False)
            share = most_uncertified(views.draws, denied)
            found.append(DrawsBound(index, views.draws, denied, share))
    return tuple(found)


def largest_severity(found: Sequence[tuple[float, bool]]) -> float | None:
    """Return the largest severity up to which everything holds, in whatever order it comes."""
    largest = None
    for severity, group in itertools.groupby(sorted(found), key=lambda one: one[0]):
        if not all(holds for _, holds in group):
            break
        largest = severity
    return largest


def _selections(certificate: cost_bounds.Certificate) -> list[SelectionCertificate]:
    columns = certificate.certified, certificate.margin
    pairs = zip(*(column.flatten().tolist() for column in columns), strict=True)
    return [SelectionCertificate(certified, margin) for certified, margin in pairs]
