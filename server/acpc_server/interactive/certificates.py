"""Certificates of pools that are rolled out, of many at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from acpc.contract import (
    CertifiedSeverity,
    CleanGaps,
    DrawsBound,
    PerturbationSet,
    SelectionCertificate,
    ViewCertificate,
    Views,
    grids,
)
from jaxtyping import Float, Float64
from torch import Tensor

from acpc_server.encoding import all_views
from acpc_server.evidence import most_uncertified
from acpc_server.interactive.moment import EncodedMoment, Moment
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
    bounds, steps = measures
    count, views = steps.shape[:2]
    acpc = consistency.acpc(steps, weights)  # (pools, views, J)
    through = chained(bounds, acpc, weights)
    excess = cost_bounds.excess_cost(bounds)
    chosen: list[Iterable[SelectionCertificate | None]] = [[None] * (count * views)] * 3
    chosen[0] = _selections(cost_bounds.top1_certificate(bounds))
    if elites:
        chosen[1] = _selections(cost_bounds.elite_certificate(bounds, elites))
    if moment.kept_elites:
        chosen[2] = _selections(updates.kept_certificate(bounds, elites, moment.kept_elites))
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
        softmax_bounds(moment, bounds, pool, elites),
    )  # fmt: skip
    rows = [ViewCertificate(0, *row) for row in zip(*columns, strict=False)]
    return [rows[pool * views : (pool + 1) * views] for pool in range(count)]


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
    moment: EncodedMoment,
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
    target = moment.goal.expand(1, horizon, dim)
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
