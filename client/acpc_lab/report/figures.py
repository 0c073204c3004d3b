"""Draws the figures of a report: numbers by level, the IR-SR plane, S over the severity."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc_client import SeverityLimit

from acpc_lab.plotting import INK, REGION, SOFT, hue, logarithmic, marker, whisker, zero_line
from acpc_lab.report.canvas import DOTTED, Hues, Panel, Plate, by_task, ends, marks, threshold
from acpc_lab.report.distributions import distributions, steps
from acpc_lab.report.model import ReportData
from acpc_lab.report.verdicts import curves
from acpc_lab.sweeps import BY_NAME, CellResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Beyond this ratio of the largest to the smallest relative IR, linear axes hide the small ones.
_LOG_BEYOND = 8.0
_LOWEST = -2.0


def plates(data: ReportData) -> list[Plate]:
    """Every figure that the data has values for, in the order of the page."""
    drawn = [
        *(_levels(data, shift) for shift in data.shifts if data.has_levels),
        _limits(data),
        _plane(data),
        *(distributions(data, shift) for shift in data.shifts),
        *(steps(data, shift) for shift in data.shifts),
    ]
    return [plate for plate in drawn if plate.panels]


def _levels(data: ReportData, shift: str) -> Plate:
    """One panel per task: the paper's Fig. full-sweep-diagnostics for one shift."""
    success = any(cell.success is not None for cell in data.cells if cell.shift == shift)
    rows = (*(("success",) if success else ()), "ir_relative", "sr")
    panels = [
        Panel(heading, partial(_draw_levels, data=data, cells=cells, rows=rows, title=heading))
        for heading, cells in by_task(data, shift, lambda cell: cell.level is not None)
        if len({cell.level for cell in cells}) > 1
    ]
    planning = (
        "Top: planning success under the shift; dashed, that of the unaugmented checkpoint on "
        "clean frames. "
    )
    return Plate(
        key="levels",
        shift=shift,
        title="Level by level",
        caption=f"{planning if success else ''}Relative IR (lower is better) and SR (higher is "
        f"better) over the {data.level_words}. The line joins the means of the training runs, the "
        f"marks are the single runs. Dotted: the thresholds.{marks(data)}",
        panels=tuple(panels),
        size=(2.9, 1.15 * len(rows) + 0.35),
        rows=len(rows),
    )


def _draw_levels(
    axes: Sequence[Axes],
    data: ReportData,
    cells: Sequence[CellResult],
    rows: Sequence[str],
    title: str,
) -> None:
    thresholds = next(cell.score.verdict.thresholds for cell in cells if cell.score)
    for axis, row in zip(axes, rows, strict=True):
        if row == "success":
            clean = [c.clean_success for c in cells if not c.level and c.clean_success is not None]
            if clean:
                dashed = {**DOTTED, "linestyle": (0, (4, 2))}
                axis.axhline(100 * statistics.fmean(clean), **dashed, label="clean frames")
        else:
            threshold(axis, thresholds.ir if row == "ir_relative" else thresholds.sr)
            highest = _highest(cells, row)
            axis.set_ylim(-0.06 * highest, 1.06 * highest)
        _draw_runs(axis, data, cells, row)
        axis.set_ylabel("success (%)" if row == "success" else BY_NAME[row].title)
        axis.margins(x=0.1, y=0.12)
    axes[0].set_title(title)
    axes[-1].set_xlabel(data.level_axis)


def _draw_runs(axis: Axes, data: ReportData, cells: Sequence[CellResult], row: str) -> None:
    """Draws every run at its level, side by side, and a line through the means."""
    hues = Hues(data)
    at: dict[float, list[tuple[CellResult, float]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.level or 0.0):
        value = _of(cell, row)
        if value is not None:
            at.setdefault(cell.level or 0.0, []).append((cell, value))
    means = [statistics.fmean(value for _, value in found) for found in at.values()]
    axis.plot(list(at), means, color=INK, linewidth=1.1, zorder=2, label="mean of runs")
    gap = float(min(np.diff(list(at)), default=1.0))
    for level, found in at.items():
        reach = min(0.3, 0.2 * (len(found) - 1)) * gap
        asides = np.linspace(-reach, reach, len(found)).tolist()
        for (cell, value), aside in zip(found, asides, strict=True):
            interval = None if row == "success" else ends(cell.interval(row))
            hues.mark(axis, (level + aside, value), cell, upwards=interval)


def _highest(cells: Sequence[CellResult], row: str) -> float:
    """Finds the end of an axis; intervals that reach far beyond all marks are cut."""
    marks = max([1.0, *(x for cell in cells if (x := _of(cell, row)) is not None)])
    uppers = [found.upper for cell in cells if (found := cell.interval(row))]
    return max(marks, *(min(x, 1.5 * marks) for x in uppers * (row == "ir_relative")), 0.0)


def _of(cell: CellResult, row: str) -> float | None:
    if row != "success":
        found: float | None = cell.value(row)
        return found
    return None if cell.success is None else 100 * cell.success


def _plane(data: ReportData) -> Plate:
    """One panel per shift, a point per checkpoint that has a reference."""
    shown = [cell for cell in data.cells if (cell.value("ir_relative") or 0) > 0]
    found = [cell.value("ir_relative") for cell in shown] + [1.0]
    wide = max(found) / min(found) > _LOG_BEYOND
    verdicts = [cell.score.verdict for cell in shown if cell.score and not cell.is_reference]
    trapped = sum(verdict.ir_passed is True and not verdict.sr_passed for verdict in verdicts)
    panels = []
    for shift in dict.fromkeys(cell.shift for cell in shown):
        cells = [cell for cell in shown if cell.shift == shift]
        title = shift if len(data.shifts) > 1 else ""
        draw = partial(_draw_plane, data=data, cells=cells, title=title, wide=wide)
        panels.append(Panel(title, draw))
    return Plate(
        key="plane",
        shift="",
        title="Which checkpoints pass",
        caption="Each mark is a checkpoint; it passes in the shaded corner, where relative IR is "
        "at most, and SR at least, its threshold. Bottom left is the trap: a model that ignores "
        "the perturbation because it ignores everything"
        f"{f'; {trapped} would pass on IR alone' if trapped else ''}.{marks(data)}",
        panels=tuple(panels),
        size=(3.1, 2.6),
    )


def _draw_plane(
    axes: Sequence[Axes], data: ReportData, cells: list[CellResult], title: str, *, wide: bool
) -> None:
    (axis,) = axes
    hues, tasks = Hues(data), data.tasks
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
    corner: dict[str, Any] = {"color": REGION, "linewidth": 0, "zorder": 0, "label": "passes"}
    axis.fill_between([left, limits.ir], limits.sr, 1.05, **corner)
    threshold(axis, limits.ir, upright=True)
    threshold(axis, limits.sr)
    for cell in cells:
        across, upwards = ends(cell.interval("ir_relative")), ends(cell.interval("sr"))
        place = (cell.value("ir_relative"), cell.value("sr"))
        shape = marker(tasks.index(cell.task))
        hues.mark(axis, place, cell, across, upwards, label=hues.label(cell), marker=shape)
    for index, task in enumerate(tasks if len(tasks) > 1 else ()):
        axis.plot([], [], linestyle="none", color=SOFT, marker=marker(index), label=task)
    axis.set_xlabel("relative IR" + ", log scale" * wide)
    axis.set_ylabel("SR")
    if title:
        axis.set_title(title, pad=10)


def _limits(data: ReportData) -> Plate:
    """One panel per kind of shift, a curve per checkpoint: S over the severity."""
    found = curves(data)
    names = list(dict.fromkeys(apart for apart, _ in found))
    panels = []
    for curve in dict.fromkeys(curve for _, curve in found):
        drawn = {names.index(name): limit for (name, of), limit in found.items() if of == curve}
        panels.append(Panel(curve, partial(_draw_limits, curve=curve, drawn=drawn)))
    return Plate(
        key="limits",
        shift="",
        title="Up to which severity",
        caption=f"The score S with its {data.interval_words} interval over the severity: a "
        "checkpoint passes where it lies above 0.",
        panels=tuple(panels),
        size=(2.9, 2.4),
    )


def _draw_limits(axes: Sequence[Axes], curve: str, drawn: dict[int, SeverityLimit]) -> None:
    (axis,) = axes
    scores = [point.score for limit in drawn.values() for point in limit.points]
    axis.set_ylim(max(_LOWEST, min(scores) - 0.1), 1.05)
    axis.set(title=curve, xlabel=next(iter(drawn.values())).unit, ylabel="S")
    zero_line(axis)
    for index, limit in drawn.items():
        draw_limit(axis, limit, hue(index))


def draw_limit(axis: Axes, limit: SeverityLimit, colour: str) -> None:
    """Draws S with its interval at each severity that was scored."""
    places = [(point.severity, point.score) for point in limit.points]
    line: dict[str, Any] = {"color": colour, "markersize": 3, "label": limit.checkpoint}
    axis.plot(*zip(*places, strict=True), "-o", **line)
    for place, point in zip(places, limit.points, strict=True):
        whisker(axis, place, colour, upwards=(point.lower, point.upper))
