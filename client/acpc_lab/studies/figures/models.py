"""Draws the studies of models: error drift, planner, geometry and sensitivity."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc_client.errors import FailedPrecondition
from numpy.typing import NDArray

from acpc_lab.extras import load
from acpc_lab.plotting import INK, RULE, SOFT, hue, joined, logarithmic, marker, panels, zero_line
from acpc_lab.studies.base import Spread
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.drift import DriftCell
from acpc_lab.studies.geometry import (
    SPACES,
    GeometryParameters,
    GeometrySummary,
    SpaceGeometry,
    key,
    tsne,
)
from acpc_lab.studies.planner import PlannerCell
from acpc_lab.studies.sensitivity import METHODS, Sensitivity, SensitivityRatio
from acpc_lab.tables import Arrays, groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def drift_errors(cells: Sequence[DriftCell]) -> Figure:
    """A panel per task; compare within a panel only, because latent scales differ."""
    tasks = groups(cell.task for cell in cells)
    figure, axes = panels(len(tasks))
    for axis, ((task,), held) in zip(axes, tasks.items(), strict=True):
        mine = [cells[index] for index in held]
        joined(
            axis,
            [(cell.base, cell.control, cell.acpc) for cell in mine],
            ("Base", "+Control", "+ACPC"),
        )
        axis.set_title(task)
    axes[0].set_ylabel("out-of-group MAE\nof the error drift")
    return figure


def planner_errors(cells: Sequence[PlannerCell], reduction: Spread) -> Figure:
    """A row per test task and training run: both errors, and by how much ACPC lowers the first."""
    figure, (left, right) = panels(2, width=2.9, height=0.19 * len(cells) + 1.0)
    places = range(len(cells), 0, -1)
    for place, cell in zip(places, cells, strict=True):
        left.plot((cell.baseline, cell.expanded), (place, place), color=RULE, zorder=1)
    for index, (field, name) in enumerate(PLANNER_MODELS.items()):
        errors = [getattr(cell, field) for cell in cells]
        left.plot(errors, places, marker(index), color=hue(index), label=name)
    left.set_yticks(list(places), [f"{cell.task}, run {cell.run}" for cell in cells])
    left.set_xlabel("MAE of log(1 + selection regret)")
    lowered = [
        100 * (1 - cell.expanded / cell.baseline) if cell.baseline else math.nan for cell in cells
    ]
    right.barh(places, lowered, color=hue(1), height=0.6)
    right.axvline(0, color=SOFT, linewidth=0.8)
    right.axvline(100 * reduction.mean, color=INK, linestyle="--", label="mean of runs")
    right.yaxis.tick_right()
    right.set_yticks(list(places), [f"{value:.1f} %" for value in lowered])
    right.set_xlabel("lower error with ACPC (%)")
    for axis in (left, right):
        axis.set_ylim(0.4, len(cells) + 0.6)
    figure.legend(loc="outside upper center", ncols=3)
    return figure


PLANNER_MODELS = {"baseline": "baseline", "expanded": "with ACPC at the planner's horizon"}


Points = NDArray[np.float64]
SPACE_TITLES = {"encoder": "encoder", "rollout": "after the rollout"}


def draw_geometry(evidence: Evidence) -> Mapping[str, Figure]:
    """The numbers as bars and, where the representations are at hand, the t-SNE panels."""
    summary, parameters = evidence.summary, evidence.parameters
    drawn = {"numbers": numbers(summary)}
    if evidence.arrays:
        with contextlib.suppress(FailedPrecondition):  # no scikit-learn: the numbers need none
            drawn["tsne"] = projections(summary, parameters, evidence.arrays)
    return drawn


def numbers(summary: GeometrySummary) -> Figure:
    """Median r/NN and the two fractions, by checkpoint and space."""
    fields = (
        ("median_ratio", "median r/NN"),
        ("below_nearest", "fraction r < NN"),
        ("disjoint", "fully disjoint fraction"),
    )
    names = list(dict.fromkeys(_checkpoint_name(space) for space in summary.spaces))
    longest = max(len(line) for name in names for line in name.splitlines())
    figure, axes = panels(3, width=max(2.0, len(names) * (0.06 * longest + 0.15)))
    for axis, (field, title) in zip(axes, fields, strict=True):
        for index, space in enumerate(SPACES):
            mine = [item for item in summary.spaces if item.space == space]
            drawn = axis.bar(
                [names.index(_checkpoint_name(item)) + (index - 0.5) * 0.38 for item in mine],
                [getattr(item, field) for item in mine],
                0.36,
                color=hue(index),
                label=SPACE_TITLES[space],
            )
            axis.bar_label(drawn, fmt="%.2g", fontsize=6)
        axis.set_xticks(range(len(names)), names)
        axis.set_title(title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def projections(summary: GeometrySummary, parameters: GeometryParameters, arrays: Arrays) -> Figure:
    """A column per checkpoint, a row per space. Coordinates are qualitative and enter no number."""
    rows = len(SPACES)
    columns = len(summary.spaces) // rows
    figure, axes = panels(columns, width=2.4, height=2.6, rows=rows)
    for position, item in enumerate(summary.spaces):
        axis = axes[position % rows * columns + position // rows]
        stem = key(position // len(SPACES), item.space)
        placed = arrays.get(f"{stem}_tsne")
        if placed is None:
            placed = tsne(arrays[f"{stem}_clean"], arrays[f"{stem}_views"], parameters)
        _scatter(axis, placed.astype(np.float64), parameters)
        axis.set_title(f"{_checkpoint_name(item)}, {SPACE_TITLES[item.space]}")
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
        "large: clean histories; small, with an ellipse: their views\n"
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


METHOD_NAMES = {"jvp": "Jacobian-vector products", "finite_difference": "finite differences"}
METHOD_OFFSETS = {"jvp": -0.08, "finite_difference": 0.08}


def draw_sensitivity(evidence: Evidence) -> Mapping[str, Figure]:
    """The figures of a sensitivity study."""
    held = evidence.summary
    drawn = {"checkpoints": sensitivities(held.checkpoints)}
    return drawn | ({"ratios": sensitivity_ratios(held.ratios)} if held.ratios else {})


def sensitivity_ratios(held: Sequence[SensitivityRatio]) -> Figure:
    """The ratio by checkpoint and method, on a log scale; below one is lower."""
    values = [item.ratio for item in held]
    figure = _estimates(held, values, "sensitivity over the\nunaugmented checkpoint's", (1.0,))
    zero_line(figure.axes[0], 1.0)
    return figure


def sensitivities(held: Sequence[Sensitivity]) -> Figure:
    """The squared Frobenius norm of every checkpoint, on a log scale."""
    return _estimates(held, [item.mean for item in held], "squared Frobenius norm")


def _estimates(
    held: Sequence[Sensitivity | SensitivityRatio],
    values: Sequence[float],
    label: str,
    shown: Sequence[float] = (),
) -> Figure:
    """A mark per checkpoint and method, with its value and a standard error.

    The axis holds the values ``shown`` besides.
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(map(_checkpoint_name, held)))}
    figure, (axis,) = panels(1, width=max(4.2, 0.95 * len(places)), height=2.6)
    reach = [*values, *shown]
    for index, method in enumerate(METHODS):
        drawn = [pair for pair in zip(held, values, strict=True) if pair[0].method == method]
        if not drawn:
            continue
        at = [places[_checkpoint_name(item)] + METHOD_OFFSETS[method] for item, _ in drawn]
        errors = [item.standard_error for item, _ in drawn]
        means = [value for _, value in drawn]
        axis.errorbar(
            at,
            means,
            errors,
            color=hue(index),
            marker=marker(index),
            linewidth=0,
            elinewidth=0.8,
            label=METHOD_NAMES[method],
        )
        # On the outer side, where the other method's mark is not.
        side, align = ((-5, 0), "right") if METHOD_OFFSETS[method] < 0 else ((5, 0), "left")
        look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 6}
        for place, value, error in zip(at, means, errors, strict=True):
            shown_value = f"{float(f'{value:.2g}'):g}"
            axis.annotate(shown_value, (place, value), side, ha=align, **look)
            reach += [value + error, max(value - error, value / 10)]
    positive = [value for value in reach if value > 0]
    if positive:
        logarithmic(axis, "y", min(positive) / 1.5, max(positive) * 1.5)
    axis.set_xticks(list(places.values()), list(places))
    axis.set_xlim(-0.6, len(places) - 0.4)
    axis.set_ylabel(f"{label}, log scale")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _checkpoint_name(item: SpaceGeometry | Sensitivity | SensitivityRatio) -> str:
    return f"{item.task}\nrun {item.run}\nnoise {item.level:g}"
