"""Draws the perturbed views of a history, as the model sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from acpc.contract import PerturbationSet, Views
from jaxtyping import Bool, Float
from torch import Tensor

from acpc_server.encoding.receipt import arrays_digest, digest_json
from acpc_server.errors import below
from acpc_server.perturb import DRAW_FORMAT, DrawKey, is_stochastic, perturb_histories


class View(NamedTuple):
    """A spec and a draw of it; for a caller's own views, spec 0 and the view's index."""

    spec_index: int
    draw: int


def view_rows(views: Views) -> list[tuple[View, int]]:
    """List every requested view, spec-major, with its row among the views that differ.

    A deterministic spec has one of those, however often it is drawn.
    """
    if not isinstance(views, PerturbationSet):
        return [(View(0, row), row) for row in range(len(views))]
    rows: list[tuple[View, int]] = []
    first = 0  # row of a spec's first view
    for index, spec in enumerate(views.specs):
        differ = is_stochastic(spec)
        rows += [(View(index, draw), first + draw * differ) for draw in range(views.draws)]
        first += views.draws if differ else 1
    return rows


def distinct_views(views: Views) -> list[View]:
    """List the views that differ."""
    first = {row: view for view, row in reversed(view_rows(views))}
    return [first[row] for row in range(len(first))]


def views_digest(views: Views) -> str:
    """sha256 over specs, draws, seed and anchor, or over a caller's own frames."""
    if not isinstance(views, PerturbationSet):
        return arrays_digest([("explicit_views", views)]).hexdigest()
    specs = [spec.digest for spec in views.specs]
    numbers = {"draws": views.draws, "seed": views.seed, "anchor": views.anchor}
    return digest_json({"draw_format": DRAW_FORMAT, "specs": specs, **numbers})


class Draw(NamedTuple):
    """One view to draw, of one of several histories."""

    history: int
    plan: PerturbationSet
    view: View


def draw_views(
    histories: Sequence[Tensor] | Tensor,
    draws: Sequence[Draw],
    between: Callable[[], None] = lambda: None,
) -> list[Float[Tensor, "history 3 height width"]]:
    """Draw views of histories of one shape, on their device, each with the bits that it has alone.

    Raises InvalidArgument, FailedPrecondition: As ``perturb.perturb_histories``; names the spec;
    AcpcError: What ``between`` raises, which is called between pieces of work.
    """
    alike: dict[str, list[int]] = {}
    for place, (_, plan, view) in enumerate(draws):
        alike.setdefault(plan.specs[view.spec_index].digest, []).append(place)
    drawn: dict[int, Tensor] = {}
    for places in alike.values():
        plan, view = draws[places[0]].plan, draws[places[0]].view
        spec = plan.specs[view.spec_index]
        given = [histories[draws[place].history] for place in places]
        keys = [
            DrawKey(draws[p].plan.seed, draws[p].plan.anchor, draws[p].view.draw) for p in places
        ]
        with below(f"specs[{view.spec_index}].{spec.kind}"):
            views = perturb_histories(given, spec, keys, between)
        drawn.update(zip(places, views, strict=True))
    return [drawn[place] for place in range(len(draws))]


def unchanged(views: Iterable[Tensor], histories: Iterable[Tensor]) -> Bool[Tensor, "views"]:
    """Compare views with their histories bit for bit; the result stays on their device."""
    pairs = [*zip(views, histories, strict=True)]
    if all(view.is_cpu for view, _ in pairs):  # stops at the first difference
        return torch.tensor([torch.equal(*pair) for pair in pairs], dtype=torch.bool)
    if len({view.shape for view, _ in pairs}) > 1:
        return torch.stack([(view == history).all() for view, history in pairs])
    all_views, all_histories = map(torch.stack, zip(*pairs, strict=True))  # a few launches
    return (all_views == all_histories).flatten(1).all(dim=1)
