"""The perturbed views of a history, as the model will see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.perturb import PerturbationSpec, perturb_frames


class View(NamedTuple):
    """Which spec and which draw of it."""

    spec_index: int
    draw: int


@dataclass(frozen=True)
class PerturbationPlan:
    """Perturbation specs, each drawn ``draws`` times for one anchor."""

    specs: tuple[PerturbationSpec, ...]
    draws: int
    seed: int
    anchor: int

    def views(self) -> list[View]:
        """Every view asked for, spec-major."""
        return [View(s, d) for s in range(len(self.specs)) for d in range(self.draws)]

    def distinct(self) -> list[View]:
        """The views that differ: a deterministic spec has one, however often it is drawn."""
        return [view for view in self.views() if view == self.source(view)]

    def source(self, view: View) -> View:
        """The distinct view whose frames ``view`` shares."""
        return view if self.specs[view.spec_index].stochastic else View(view.spec_index, 0)


def perturbed_views(
    history: Float[Tensor, "history 3 height width"], plan: PerturbationPlan
) -> Float[Tensor, "views history 3 height width"]:
    """The distinct views of one history, in the order of ``plan.distinct()``.

    Raises:
        InvalidArgument: A spec does not fit the frames; names its place in the plan.
        FailedPrecondition: A plug-in that breaks its promise.
    """
    return torch.stack(list(_draw(history, plan)))  # (views, history, 3, height, width)


def _draw(history: Tensor, plan: PerturbationPlan) -> Iterator[Tensor]:
    for view in plan.distinct():
        spec = plan.specs[view.spec_index]
        try:
            yield perturb_frames(history, spec, seed=plan.seed, anchor=plan.anchor, draw=view.draw)
        except InvalidArgument as error:
            raise error.below(f"specs[{view.spec_index}].{spec.kind}") from error
