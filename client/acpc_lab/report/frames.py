"""Draws the frames of a score's worst anchors, for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc_client import WorstAnchors
from acpc_client.errors import ArgumentError

from acpc_lab.extras import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE = 1.5
_TITLES = ("clean", "perturbed", "partner, in another state")


def frames(answer: WorstAnchors) -> Figure:
    """A row per anchor: the last frame of its history, clean, perturbed, and its partner's.

    Raises:
        ArgumentError: There are no anchors.
    """
    if not answer.anchors:
        raise ArgumentError("answer", "has nothing to draw: no anchors")
    rows = len(answer.anchors)
    size = (_SIDE * len(_TITLES) + 1, _SIDE * rows + 0.4)
    figure: Figure = load("matplotlib.figure").Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, len(_TITLES), squeeze=False)
    for row, anchor in zip(axes, answer.anchors, strict=True):
        for axis, images in zip(row, (anchor.clean, anchor.perturbed, anchor.partner), strict=True):
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            if images is not None:
                axis.imshow(images[-1], interpolation="nearest")
        apart = "" if anchor.distance is None else f"\nD {anchor.distance:.3g}"
        row[0].set_ylabel(f"anchor {anchor.anchor}\nR {anchor.radius:.3g}{apart}")
    for axis, title in zip(axes[0], _TITLES, strict=True):
        axis.set_title(title)
    figure.suptitle(answer.headline(), fontsize=8.5)
    return figure
