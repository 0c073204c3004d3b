"""What the figures share: a row of panels, runs joined by thin lines, means as diamonds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acpc_lab.extras import load
from acpc_lab.report import KINDS, MARKERS, light

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, RULE = light("ink"), light("soft"), light("rule")


def panels(
    columns: int, *, width: float = 2.1, height: float = 2.2, rows: int = 1, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of panels, in inches each; call it in ``styled``.

    Raises:
        FailedPrecondition: matplotlib is not installed.
    """
    figure: Figure = load("matplotlib.figure", "report").Figure(
        figsize=(max(width * columns, 3.0), height * rows), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    return figure, list(axes.reshape(-1))


def hue(index: int) -> str:
    """Colour of the index-th kind."""
    return light(KINDS[index % len(KINDS)])


def marker(index: int) -> str:
    """Marker of the index-th kind."""
    return MARKERS[index % len(MARKERS)]


def joined(axis: Axes, values: Sequence[Sequence[float]], labels: Sequence[str]) -> None:
    """A thin line per run over the models that are compared; diamonds are the means.

    Args:
        axis: Where.
        values: By run, then by model.
        labels: Names of the models.
    """
    places = range(len(labels))
    for run in values:
        axis.plot(places, run, color=RULE, linewidth=0.8, zorder=1)
    for place in places:
        column = [run[place] for run in values]
        colour = hue(place)
        axis.plot([place] * len(column), column, "o", color=colour, markersize=3, zorder=2)
        mean = sum(column) / len(column)
        axis.plot(place, mean, "D", color=colour, markersize=6, zorder=3, markeredgecolor=INK)
    axis.set_xticks(list(places), labels)
    axis.set_xlim(-0.4, len(labels) - 0.6)
    axis.set_ylim(bottom=0)


def zero_line(axis: Axes, height: float = 0.0) -> None:
    """A dotted line across the panel."""
    axis.axhline(height, color=SOFT, linewidth=0.8, linestyle=":", zorder=0)
