"""Draws the screen score over the severity, which passes until it first crosses zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acpc_client import SeverityLimit

from acpc_lab.plotting import KINDS, Draw, hue, whisker, zero_line
from acpc_lab.report.figures.plate import MAX_KEYS, Key, Panel, Plate
from acpc_lab.report.limits import severity_limits
from acpc_lab.report.model import ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOWEST = -2.0


def limits(data: ReportData) -> Plate:
    """One panel per kind of shift, a curve per checkpoint."""
    found = severity_limits(data)
    names = list(dict.fromkeys(apart for apart, _ in found))
    panels = []
    for curve in dict.fromkeys(curve for _, curve in found):
        drawn = {names.index(name): limit for (name, of), limit in found.items() if of == curve}
        words = "; ".join(limit.headline() for limit in drawn.values())
        panels.append(Panel(curve, _draw(curve, drawn), f"S over the severity. {words}."))
    keys = [Key(name[0], KINDS[index % len(KINDS)]) for index, name in enumerate(names)]
    if len(keys) > MAX_KEYS:
        keys[MAX_KEYS:] = [Key(f"and {len(keys) - MAX_KEYS} more", "soft")]
    return Plate(
        key="limits",
        shift="",
        title="Up to which severity",
        caption=f"The score S with its {data.interval_words} interval over the severity: a "
        "checkpoint passes where it lies above 0.",
        panels=tuple(panels),
        legend=(*keys, Key("passes above", "soft", "dots")),
        size=(2.9, 2.4),
    )


def _draw(curve: str, drawn: dict[int, SeverityLimit]) -> Draw:
    def draw(axes: Sequence[Axes]) -> None:
        (axis,) = axes
        scores = [point.score for limit in drawn.values() for point in limit.points]
        axis.set_ylim(max(_LOWEST, min(scores) - 0.1), 1.05)
        axis.set(title=curve, xlabel=next(iter(drawn.values())).unit, ylabel="S")
        zero_line(axis)
        for index, limit in drawn.items():
            places = [(point.severity, point.score) for point in limit.points]
            axis.plot(*zip(*places, strict=True), "-o", color=hue(index), markersize=3)
            for place, point in zip(places, limit.points, strict=True):
                whisker(axis, place, hue(index), upwards=(point.lower, point.upper))

    return draw
