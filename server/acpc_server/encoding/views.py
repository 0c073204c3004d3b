"""Draws the perturbed views of a history, as the model sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from acpc.contract import PerturbationSet
from jaxtyping import Float
from torch import Tensor

from acpc_server.encoding.receipt import ArraysDigest, digest_json
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import is_stochastic, perturb_frames


class View(NamedTuple):
    """Which spec and which draw of it; of a caller's own views, spec 0 and the view's index."""

    spec_index: int
    draw: int


@dataclass(frozen=True)
class DrawnViews(PerturbationSet):
    """A perturbation set that says which of its views differ."""

    @classmethod
    def of(cls, asked: PerturbationSet) -> DrawnViews:
        """The views of a request's perturbations."""
        return cls(asked.specs, asked.draws, asked.seed, asked.anchor)

    def views(self) -> list[View]:
        """Every view asked for, spec-major."""
        return [View(s, d) for s in range(len(self.specs)) for d in range(self.draws)]

    def distinct(self) -> list[View]:
        """The views that differ: a deterministic spec has one, however often it is drawn."""
        return [view for view in self.views() if view == self.source(view)]

    def source(self, view: View) -> View:
        """The distinct view whose frames ``view`` shares."""
        stochastic = is_stochastic(self.specs[view.spec_index])
        return view if stochastic else View(view.spec_index, 0)


Views: TypeAlias = DrawnViews | np.ndarray
"""The other views of a history: drawn by a plan, or a caller's, uint8 (views, h, height, width, 3).
"""


def view_rows(views: Views) -> list[tuple[View, int]]:
    """Every view asked for, and its row among the views that differ."""
    if not isinstance(views, DrawnViews):
        return [(View(0, row), row) for row in range(len(views))]
    rows = {view: row for row, view in enumerate(views.distinct())}
    return [(view, rows[views.source(view)]) for view in views.views()]


def views_digest(views: Views) -> str:
    """sha256 over specs, draws, seed and anchor, or over a caller's own frames."""
    if not isinstance(views, DrawnViews):
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
    history: Float[Tensor, "history 3 height width"], plan: DrawnViews
) -> Float[Tensor, "views history 3 height width"]:
    """The distinct views of one history, in the order of ``plan.distinct()``.

    Raises:
        InvalidArgument: A spec does not fit the frames; names its position in the plan.
        FailedPrecondition: A plug-in that breaks its promise.
    """
    return torch.stack([draw_view(history, plan, view) for view in plan.distinct()])


def draw_view(
    history: Float[Tensor, "history 3 height width"], plan: DrawnViews, view: View
) -> Float[Tensor, "history 3 height width"]:
    """One view of a history; raises as :func:`perturbed_views`."""
    spec = plan.specs[view.spec_index]
    try:
        return perturb_frames(history, spec, seed=plan.seed, anchor=plan.anchor, draw=view.draw)
    except InvalidArgument as error:
        raise error.below(f"specs[{view.spec_index}].{spec.kind}") from error
