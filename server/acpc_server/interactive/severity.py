"""Finds the largest severity up to which a planner's selection is certified."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from acpc.contract import CertifiedSeverity

from acpc_server.encoding import DrawnViews, Views
from acpc_server.perturb import resolve


def certified_severities(
    views: Views, *, top1: Sequence[bool], elite: Sequence[bool]
) -> tuple[CertifiedSeverity, ...]:
    """One per perturbation of the plan, in order of first appearance.

    The specs of one perturbation are its severity grid. A severity counts when every draw of it and
    of every milder one on the grid is certified; nothing is said between grid points.

    Args:
        views: What the views are; a caller's own have no severity.
        top1: Whether the winner is certified, per view asked for.
        elite: The same for the elite set.
    """
    if not isinstance(views, DrawnViews):
        return ()
    grids: dict[str, list[tuple[float, bool, bool]]] = {}
    for view, winner, elites in zip(views.views(), top1, elite, strict=True):
        spec = views.specs[view.spec_index]
        grids.setdefault(resolve(spec)[0].name, []).append((spec.severity, winner, elites))
    return tuple(
        CertifiedSeverity(
            kind,
            _largest([(severity, winner) for severity, winner, _ in grid]),
            _largest([(severity, elites) for severity, _, elites in grid]),
        )
        for kind, grid in grids.items()
    )


def _largest(draws: list[tuple[float, bool]]) -> float | None:
    largest = None
    for severity, group in groupby(sorted(draws), key=lambda draw: draw[0]):
        if not all(certified for _, certified in group):
            break
        largest = severity
    return largest
