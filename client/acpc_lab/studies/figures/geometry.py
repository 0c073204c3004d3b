"""Fig. local-geometry-highd in the paper: t-SNE panels with their high-dimensional numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acpc_lab.extras import load
from acpc_lab.plotting import INK, RULE, hue, panels
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.geometry import (
    SPACES,
    GeometryParameters,
    GeometryRows,
    GeometrySummary,
    SpaceGeometry,
    key,
)
from acpc_lab.studies.projection import tsne
from acpc_lab.tables import Arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = NDArray[np.float64]
TITLES = {"encoder": "encoder", "rollout": "after the rollout"}


def draw(
    evidence: Evidence[GeometryRows, GeometryParameters, GeometrySummary],
) -> Mapping[str, Figure]:
    """The numbers as bars and, where the representations are at hand, the t-SNE panels."""
    summary, parameters = evidence.summary, evidence.parameters
    drawn = {"numbers": numbers(summary)}
    if evidence.arrays:
        drawn["tsne"] = projections(summary, parameters, evidence.arrays)
    return drawn


def numbers(summary: GeometrySummary) -> Figure:
    """Median r/NN and the two fractions, by checkpoint and space."""
    fields = (
        ("median_ratio", "median r/NN"),
        ("below_nearest", "fraction r < NN"),
        ("disjoint", "fully disjoint fraction"),
    )
    names = list(dict.fromkeys(_name(space) for space in summary.spaces))
    figure, axes = panels(3, width=max(2.0, 0.7 * len(names)))
    for axis, (field, title) in zip(axes, fields, strict=True):
        for index, space in enumerate(SPACES):
            mine = [item for item in summary.spaces if item.space == space]
            drawn = axis.bar(
                [names.index(_name(item)) + (index - 0.5) * 0.38 for item in mine],
                [getattr(item, field) for item in mine],
                0.36,
                color=hue(index),
                label=TITLES[space],
            )
            axis.bar_label(drawn, fmt="%.2g", fontsize=6)
        axis.set_xticks(range(len(names)), names)
        axis.set_title(title)
    axes[0].legend()
    return figure


def projections(summary: GeometrySummary, parameters: GeometryParameters, arrays: Arrays) -> Figure:
    """A panel per checkpoint and space. Coordinates are qualitative and enter no number."""
    figure, axes = panels(len(summary.spaces), width=2.4, height=2.6)
    for position, (axis, item) in enumerate(zip(axes, summary.spaces, strict=True)):
        stem = key(position // len(SPACES), item.space)
        placed = arrays.get(f"{stem}_tsne")
        if placed is None:
            placed = tsne(arrays[f"{stem}_clean"], arrays[f"{stem}_views"], parameters)
        _scatter(axis, placed.astype(np.float64), parameters)
        axis.set_title(f"{_name(item)}\n{TITLES[item.space]}")
        axis.text(
            0.02,
            0.98,
            f"r/NN {item.median_ratio:.2f}\nr<NN {item.below_nearest:.0%}\n"
            f"disjoint {item.disjoint:.0%}",
            transform=axis.transAxes,
            va="top",
            fontsize=6,
        )
    figure.supxlabel(
        "t-SNE coordinates and ellipses are qualitative; the numbers are high-dimensional",
        fontsize=6.5,
    )
    return figure


def _scatter(axis: Axes, placed: Points, parameters: GeometryParameters) -> None:
    count = min(parameters.highlighted, len(placed))
    chosen = np.linspace(0, len(placed) - 1, count).round().astype(int)
    rest = np.delete(placed, chosen, axis=0).reshape(-1, 2)
    axis.scatter(rest[:, 0], rest[:, 1], s=2, color=RULE, linewidth=0, rasterized=True)
    colours = load("matplotlib").colormaps["turbo"](np.linspace(0.05, 0.95, count))
    ellipse = load("matplotlib.patches").Ellipse
    for colour, history in zip(colours, placed[chosen], strict=True):
        axis.scatter(history[1:, 0], history[1:, 1], s=5, color=colour, linewidth=0, zorder=2)
        axis.scatter(
            history[0, 0], history[0, 1], s=28, color=colour, edgecolor=INK, linewidth=0.8, zorder=3
        )
        if len(history) > 3:
            centre, width, height, angle = envelope(history[1:], parameters.envelope)
            axis.add_patch(
                ellipse(centre, width, height, angle=angle, color=colour, alpha=0.2, zorder=1)
            )
    axis.set_xticks([])
    axis.set_yticks([])


def envelope(points: Points, share: float) -> tuple[tuple[float, float], float, float, float]:
    """Centre, full width, full height and angle in degrees of a Gaussian's ellipse.

    Args:
        points: The sample whose mean and covariance the Gaussian has, (n, 2).
        share: Probability that the ellipse encloses.
    """
    centre = points.mean(axis=0)
    lengths, axes = np.linalg.eigh(np.cov(points.T))
    # Of the squared Mahalanobis distance in two dimensions, -2 log(1 - p) is the p-quantile.
    reach = 2 * np.sqrt(np.maximum(lengths, 0) * -2 * math.log(1 - share))
    angle = math.degrees(math.atan2(axes[1, 0], axes[0, 0]))
    return (float(centre[0]), float(centre[1])), float(reach[0]), float(reach[1]), angle


def _name(item: SpaceGeometry) -> str:
    return f"{item.task} {item.run}, {item.level:g}"
