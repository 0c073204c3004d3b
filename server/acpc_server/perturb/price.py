"""Prices views before they are drawn: work, and bytes held at the peak."""

from collections.abc import Iterable

from acpc.contract import VisualChange

from acpc_server.errors import InvalidArgument
from acpc_server.perturb.registry import Cost, resolve

# Work that a CPU does in one go, 7 ms; see :class:`Cost`.
PIECE_WORK = 3.5e6
MAX_VIEW_BYTES = 2**30
"""What drawing one view may hold, 1 GiB; three frames of 224 pixels take 15 MiB."""


def cost_of(spec: VisualChange) -> Cost:
    """Add up the costs of the changes that a change is made of; raises as :func:`resolve`."""
    found = [resolve(step) for step in spec.steps]
    costs = [x.cost(asked) if callable(x.cost) else x.cost for x, asked in found]
    passes, view, once, copies = zip(*costs, strict=True)
    return Cost(sum(passes), sum(view), sum(once), max(copies))


def drawing_work(views: Iterable[tuple[VisualChange, int]], pixels: int) -> float:
    """Price the work of views: the change of each, and its frames of so many pixels."""
    costs: dict[int, Cost] = {}
    work = 0.0
    for spec, frames in views:
        cost = costs.get(id(spec))
        if cost is None:
            cost = costs[id(spec)] = cost_of(spec)
            work += cost.once
        work += cost.of_view(frames, pixels)
    return work


def check_drawing(specs: Iterable[VisualChange], frames: int, pixels: int, path: str) -> None:
    """Raise InvalidArgument for a view that takes too much memory to draw.

    ``path`` is the field of a change, with its index as ``{}``; ``frames`` are those of a view, of
    so many pixels.
    """
    for index, spec in enumerate(specs):
        needed = int(cost_of(spec).copies * frames * pixels * 3 * 4)
        if needed > MAX_VIEW_BYTES:
            raise InvalidArgument(
                path.format(index),
                f"a view of {frames} frames of {pixels} pixels takes {needed} bytes to draw, over "
                f"the limit of {MAX_VIEW_BYTES}; use a checkpoint of smaller frames",
                reason="VIEW_TOO_LARGE",
            )
