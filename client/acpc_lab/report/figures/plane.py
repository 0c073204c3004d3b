"""Draws the IR-SR plane, and the screen score over the severity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from acpc_client import SeverityLimit

from acpc_lab.plotting import REGION, hue, logarithmic, whisker, zero_line
from acpc_lab.report.figures.plate import Hues, Key, Panel, Plate, ended, ends, mark, threshold
from acpc_lab.report.limits import severity_limits
from acpc_lab.report.model import Measurement, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Beyond this ratio of the largest to the smallest relative IR, linear axes hide the small ones.
_LOG_BEYOND = 8.0
_LOWEST = -2.0


def plane(data: ReportData) -> Plate:
    """One panel per shift, a point per checkpoint that has a reference."""
    hues = Hues(data)
    shown = [cell for cell in data.cells if (cell.value("ir_relative") or 0) > 0]
    found = [cell.value("ir_relative") for cell in shown] + [1.0]
    wide = max(found) / min(found) > _LOG_BEYOND
    verdicts = [cell.score.verdict for cell in shown if cell.score and not cell.is_reference]
    trapped = sum(verdict.ir_passed is True and not verdict.sr_passed for verdict in verdicts)
    panels = []
    for shift in dict.fromkeys(cell.shift for cell in shown):
        cells = [cell for cell in shown if cell.shift == shift]
        title = shift if len(data.shifts) > 1 else ""
        draw = partial(_draw_plane, cells=cells, hues=hues, title=title, wide=wide)
        panels.append(Panel(title, draw))
    return Plate(
        key="plane",
        shift="",
        title="Which checkpoints pass",
        caption="Each mark is a checkpoint; it passes in the shaded corner, where relative IR is "
        "at most, and SR at least, its threshold. Bottom "
        "left is the trap: a model that ignores the perturbation because it ignores everything"
        f"{f'; {trapped} would pass on IR alone' if trapped else ''}.",
        panels=tuple(panels),
        legend=(
            *hues.legend(shown, mark="swatch"),
            *hues.marks(shown),
            Key("passes", REGION, "region"),
        ),
        size=(3.1, 2.6),
    )


def _draw_plane(
    axes: Sequence[Axes], cells: list[Measurement], hues: Hues, title: str, *, wide: bool
) -> None:
    (axis,) = axes
    limits = next(cell.score.verdict.thresholds for cell in cells if cell.score)
    marks = [cell.value("ir_relative") for cell in cells] + [limits.ir, 1.0]
    # Intervals that reach far beyond all marks are cut.
    low, high = (min(marks) / 3, max(marks) * 3) if wide else (min(marks), max(marks) * 1.5)
    bars = [end for cell in cells for end in ends(cell.interval("ir_relative")) or ()]
    reach = marks + [min(max(end, low), high) for end in bars]
    left, right = (min(reach) / 1.5, max(reach) * 1.3) if wide else (0, max(reach) * 1.1)
    if wide:
        logarithmic(axis, "x", left, right)
    else:
        axis.set_xlim(left, right)
    axis.set_ylim(-0.04, 1.05)
    axis.fill_between([left, limits.ir], limits.sr, 1.05, color=REGION, linewidth=0, zorder=0)
    threshold(axis, limits.ir, upright=True)
    threshold(axis, limits.sr)
    for cell in cells:
        across, upwards = ends(cell.interval("ir_relative")), ends(cell.interval("sr"))
        place = (cell.value("ir_relative"), cell.value("sr"))
        mark(axis, place, cell, hues, across=across, upwards=upwards)
    axis.set_xlabel("relative IR" + ", log scale" * wide)
    axis.set_ylabel("SR")
    if title:
        axis.set_title(title, pad=10)


def limits(data: ReportData) -> Plate:
    """One panel per kind of shift, a curve per checkpoint: S over the severity."""
    found = severity_limits(data)
    names = list(dict.fromkeys(apart for apart, _ in found))
    panels = []
    for curve in dict.fromkeys(curve for _, curve in found):
        drawn = {names.index(name): limit for (name, of), limit in found.items() if of == curve}
        panels.append(Panel(curve, partial(_draw_limits, curve=curve, drawn=drawn)))
    keys = [Key(name[0], hue(index)) for index, name in enumerate(names)]
    return Plate(
        key="limits",
        shift="",
        title="Up to which severity",
        caption=f"The score S with its {data.interval_words} interval over the severity: a "
        "checkpoint passes where it lies above 0.",
        panels=tuple(panels),
        legend=(*ended(keys), Key("passes above", mark="dots")),
        size=(2.9, 2.4),
    )


def _draw_limits(axes: Sequence[Axes], curve: str, drawn: dict[int, SeverityLimit]) -> None:
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
