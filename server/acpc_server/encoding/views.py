"""Draws the perturbed views of a history, as the model sees them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from acpc.contract import PerturbationSet, Views
from jaxtyping import Float
from torch import Tensor

from acpc_server.encoding.receipt import ArraysDigest, digest_json
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import is_stochastic, perturb_frames


class View(NamedTuple):
    """Which spec and which draw of it; of a caller's own views, spec 0 and the view's index."""

    spec_index: int
    draw: int


def all_views(plan: PerturbationSet) -> list[View]:
    """Every view asked for, spec-major."""
    return [View(s, d) for s in range(len(plan.specs)) for d in range(plan.draws)]


def distinct_views(plan: PerturbationSet) -> list[View]:
    """The views that differ: a deterministic spec has one, however often it is drawn."""
    draws = [plan.draws if is_stochastic(spec) else 1 for spec in plan.specs]
    return [View(s, d) for s, count in enumerate(draws) for d in range(count)]


def view_rows(views: Views) -> list[tuple[View, int]]:
    """Every view asked for, and its row among the views that differ."""
    if not isinstance(views, PerturbationSet):
        return [(View(0, row), row) for row in range(len(views))]
    rows = {view: row for row, view in enumerate(distinct_views(views))}
    return [(view, rows.get(view, rows[View(view.spec_index, 0)])) for view in all_views(views)]


def views_digest(views: Views) -> str:
    """sha256 over specs, draws, seed and anchor, or over a caller's own frames."""
    if not isinstance(views, PerturbationSet):
        return ArraysDigest([("explicit_views", views)]).hex
    return digest_json(
        {
            "specs": [spec.digest for spec in views.specs],
            "draws": views.draws,
            "seed": views.seed,
            "anchor": views.anchor,
        }
    )


def perturbed_views(
    history: Float[Tensor, "history 3 height width"], plan: PerturbationSet
) -> Float[Tensor, "views history 3 height width"]:
    """The distinct views of one history, in order."""
    return torch.stack([draw_view(history, plan, view) for view in distinct_views(plan)])


def draw_view(
    history: Float[Tensor, "history 3 height width"], plan: PerturbationSet, view: View
) -> Float[Tensor, "history 3 height width"]:
    """One view of a history; raises as :func:`perturbed_views`."""
    spec = plan.specs[view.spec_index]
    try:
        return perturb_frames(history, spec, seed=plan.seed, anchor=plan.anchor, draw=view.draw)
    except InvalidArgument as error:
        raise error.below(f"specs[{view.spec_index}].{spec.kind}") from error
