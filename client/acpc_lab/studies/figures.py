"""Draws what several studies show: a row per checkpoint or case, a column per number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acpc_lab.plotting import RULE, SOFT, hue, logarithmic, marker, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = Sequence[float | None]
_CHARACTER, _ROW = 0.062, 0.22  # inches


@dataclass(frozen=True)
class Panel:
    """One number of every row.

    Attributes:
        title: What it is.
        series: Its values by what they are of; None where a row has none.
        errors: Half the length of the whiskers of a series.
        line: A number to compare with.
        log: On a log scale.
    """

    title: str
    series: Mapping[str, Values]
    errors: Mapping[str, Values] = field(default_factory=dict)
    line: float | None = None
    log: bool = False


def by_row(names: Sequence[str], shown: Sequence[Panel], *, width: float = 1.7) -> Figure:
    """A mark for each row and series; ``width`` of a panel is in inches."""
    margin = _CHARACTER * max(map(len, names)) / len(shown)
    height = _ROW * len(names) + 0.9
    figure, axes = panels(len(shown), width=width + margin, height=height, sharey=True)
    for axis, panel in zip(axes, shown, strict=True):
        for index, label in enumerate(panel.series):
            _marks(axis, panel, label, index)
        _scaled(axis, panel)
        axis.set_xlabel(panel.title)
        axis.hlines(range(len(names)), *axis.get_xlim(), color=RULE, linewidth=0.5, zorder=0)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)  # the first stands at the top
    alike = len({tuple(panel.series) for panel in shown}) == 1
    key: dict[str, Any] = {"ncols": 3, "columnspacing": 0.8}
    for axis, panel in zip(axes, shown, strict=True):
        if alike and len(panel.series) > 1:
            named = axis.get_legend_handles_labels()
            figure.legend(*named, loc="outside upper center", **key)
            break
        if len(panel.series) > 1:
            axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), **key)
    return figure


def _marks(axis: Axes, panel: Panel, label: str, index: int) -> None:
    """Draws a series, with its numbers where there are two series at most."""
    count = len(panel.series)
    shift = (index - (count - 1) / 2) * 0.7 / max(count, 2)
    held = [(x, row) for row, x in enumerate(panel.series[label]) if x is not None]
    look: dict[str, Any] = {"color": hue(index), "marker": marker(index), "markersize": 4}
    if label in panel.errors:
        look |= {"xerr": [panel.errors[label][row] for _, row in held], "elinewidth": 0.8}
    at = [x for x, _ in held], [row + shift for _, row in held]
    axis.errorbar(*at, linewidth=0, zorder=3, label=label, **look)
    place: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
    for x, row in zip(*at, strict=True) if count <= 2 else ():
        axis.annotate(f"{x:.3g}", (x, row), fontsize=5.5, color=SOFT, **place)


def _scaled(axis: Axes, panel: Panel) -> None:
    """Sets the limits of a panel, with room for the numbers, and draws its line."""
    known = [x for values in panel.series.values() for x in values if x is not None]
    known += [panel.line] if panel.line is not None else []
    if panel.log and (positive := [x for x in known if x > 0]):
        logarithmic(axis, "x", min(positive) / 1.5, max(positive) * 2.5)
    elif known:
        low, high = min(known), max(known)
        low = low if low > high / 2 else min(0.0, low)
        reach = (high - low) or abs(high) or 1.0
        axis.set_xlim(low - 0.05 * reach, high + 0.2 * reach)
    if panel.line is not None:
        axis.axvline(panel.line, color=SOFT, linewidth=0.8, linestyle=":", zorder=1)


def case_of(item: Any) -> str:  # noqa: ANN401 - a record
    """Names a row by its task and run, and by its level where it has one."""
    level = getattr(item, "level", None)
    return f"{item.task}, run {item.run}" + ("" if level is None else f", {level:g}")
