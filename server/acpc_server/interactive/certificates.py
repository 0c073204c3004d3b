"""Certificates of a pool that is rolled out, under each of its views."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from acpc.contract import (
    CertifiedSeverity,
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

from acpc_server.encoding import view_rows
from acpc_server.evidence import most_uncertified
from acpc_server.interactive.moment import Moment
from acpc_server.interactive.pieces import Measures
from acpc_server.numerics import consistency, cost_bounds, linear_quantiles, objectives, updates
from acpc_server.perturb import is_stochastic

QUANTILE = 0.90


class ViewNumbers(NamedTuple):
    """What certificates say of a pool's candidates, (views, J), and of its views, (views,).

    Float64 where the latents are; a certificate is granted exactly where its margin is above 0.
    """

    perturbed_costs: Tensor
    displacements: Tensor
    bounds: Tensor
    chained_bounds: Tensor
    acpc_one_step: Tensor
    acpc: Tensor
    perturbed_winner: Tensor
    excess_cost: Tensor
    excess_cost_bound: Tensor
    top1: Tensor
    elite: Tensor | None
    kept: Tensor | None


def view_numbers(
    measures: Measures, weights: Tensor, last: float, elites: int, kept: int = 0
) -> ViewNumbers:
    """Certify a pool with horizon weights (H,), of which ``last`` is the last one.

    There is an elite set of ``elites``, 0 for none, and of ``kept`` that the next pool keeps.
    Nothing waits for a device.
    """
    bounds, steps = measures
    acpc, excess = consistency.acpc(steps, weights), cost_bounds.excess_cost(bounds)
    if isinstance(bounds, objectives.ObjectiveBounds):
        through = objectives.chained_objective_bounds(bounds, acpc, weights)
    else:
        through = cost_bounds.chained_bounds(bounds, acpc, last)
    return ViewNumbers(
        bounds.perturbed_costs,
        bounds.displacements,
        bounds.bounds,
        through,
        steps[..., 0].contiguous(),
        acpc,
        excess.perturbed_winner,
        excess.excess,
        excess.bound,
        cost_bounds.top1_certificate(bounds).margin,
        cost_bounds.elite_certificate(bounds, elites).margin if elites else None,
        updates.kept_certificate(bounds, elites, kept).margin if kept else None,
    )


def certify_views(
    moment: Moment, measures: Measures, weights: Tensor, elites: int, pool: Tensor
) -> list[ViewCertificate]:
    """Certify a pool (J, H, block width) under each of its views, with horizon weights (H,).

    There is an elite set of ``elites``, 0 for none. A certificate calls its view (0, row).
    """
    numbers = view_numbers(measures, weights, float(weights[-1]), elites, moment.kept_elites)
    return write_views(numbers, _softmax_bounds(moment, measures.bounds, pool, elites))


def write_views(
    numbers: ViewNumbers, softmax: Sequence[SoftmaxBounds] | None = None
) -> list[ViewCertificate]:
    """Write a certificate for each view of numbers on the host."""
    acpc, one_step = numbers.acpc, numbers.acpc_one_step
    one_steps, q90s = (linear_quantiles(x, QUANTILE) if len(x) else [] for x in (one_step, acpc))
    winners, excess, bound = (x.tolist() for x in numbers[6:9])
    top1, elite, kept = (None if x is None else _selections(x) for x in numbers[9:])
    assert top1 is not None  # noqa: S101
    return [
        ViewCertificate(
            spec_index=0,
            draw=row,
            perturbed_costs=numbers.perturbed_costs[row].numpy(),
            displacements=numbers.displacements[row].numpy(),
            bounds=numbers.bounds[row].numpy(),
            chained_bounds=numbers.chained_bounds[row].numpy(),
            acpc_one_step=one_step[row].numpy(),
            acpc=acpc[row].numpy(),
            perturbed_winner=int(winners[row]),
            excess_cost=excess[row],
            excess_cost_bound=bound[row],
            top1=top1[row],
            elite=elite[row] if elite else None,
            acpc_one_step_q90=one_steps[row],
            acpc_q90=q90s[row],
            kept=kept[row] if kept else None,
            softmax=softmax[row] if softmax else None,
        )
        for row in range(len(acpc))
    ]


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
    bounds, acpc = measures.bounds, consistency.acpc(measures.steps, weights)  # (views, J)
    bound = consistency.drift_bound(acpc, errors, changed, horizon=horizon, dim=dim)
    broken = consistency.error_drift(errors, changed) > bound
    broken |= (bounds.perturbed_costs - costs).abs() > bounds.bounds
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
    for (view, _), winner, elites in zip(view_rows(views), top1, elite, strict=True):
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


def _softmax_bounds(
    moment: Moment, bounds: cost_bounds.PoolBounds, pool: Tensor, elites: int
) -> list[SoftmaxBounds] | None:
    """Bound the softmax mean of one pool under each view; None where none is asked for."""
    if moment.temperature is None:
        return None
    chosen = cost_bounds.elite_indices(bounds.clean_costs, elites) if elites else None
    found = updates.softmax_update(bounds, pool, moment.temperature, chosen)
    ends = found.lower.numpy(), found.upper.numpy()
    return [*map(SoftmaxBounds, *ends, found.displacement.tolist(), found.total_variation.tolist())]


def _selections(margins: Tensor) -> list[SelectionCertificate]:
    return [SelectionCertificate(margin > 0, margin) for margin in margins.tolist()]
