"""Draws numbers by level, the IR-SR plane and anchors, as plates of panels."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from acpc_client import Interval, Outcome

from acpc_lab.plotting import (
    GROUND,
    INK,
    REGION,
    SOFT,
    Draw,
    hue,
    logarithmic,
    marker,
    spread,
    whisker,
)
from acpc_lab.report.model import ReportData, dotted, printable
from acpc_lab.report.receipts import wanted
from acpc_lab.sweeps import BY_NAME, CellResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Beyond this ratio of the largest to the smallest relative IR, linear axes hide the small ones.
_LOG_BEYOND = 8.0
DOTTED: dict[str, Any] = {"color": SOFT, "linestyle": (0, (1.2, 2)), "linewidth": 1.0, "zorder": 1}
Ends = tuple[float, float]


class Plate(NamedTuple):
    """A figure: panels of one kind, side by side, each with its title.

    Attributes:
        key: Kind of the figure; with the shift, its file name.
        shift: The shift it is about; empty: all of them.
        size: Width and height of a panel in inches.
        rows: Axes in a panel, over one x axis.
    """

    key: str
    shift: str
    title: str
    caption: str
    panels: tuple[tuple[str, Draw], ...]
    size: tuple[float, float]
    rows: int = 1


class Hues:
    """The colour and the name of every cell in a legend, the same in every figure.

    Levels, where there are any, make a sequence from weak to strong, with the unaugmented ones in
    ink; otherwise every checkpoint has a colour of its own.
    """

    def __init__(self, data: ReportData) -> None:
        self._data = data
        raised = [level for level in data.levels if level > 0]
        self._levels = dict(zip(raised, spread(len(raised)), strict=True))
        others = dict.fromkeys(cell.name for cell in data.cells if not cell.is_reference)
        self._names = {name: hue(index) for index, name in enumerate(others)}

    def colour(self, cell: CellResult) -> str:
        """Colour of a cell."""
        if not self._data.has_levels:
            return self._names.get(cell.name, INK)
        return SOFT if cell.level is None else self._levels.get(cell.level, INK)

    def label(self, cell: CellResult) -> str:
        """Text of a cell in a legend: its level, or its checkpoint."""
        if not self._data.has_levels:
            return printable(cell.name) + " (reference)" * cell.is_reference
        if cell.level is None:
            return "no level"
        if self._data.level_name in ("epoch", "step"):  # early epochs have the same augmentation
            named = f"{self._data.level_name} {cell.level:g}"
            return "reference" if cell.is_reference else named
        return "unaugmented" if cell.is_reference else f"{cell.level:g}"

    def mark(
        self,
        axis: Axes,
        place: tuple[float, float],
        cell: CellResult,
        across: Ends | None = None,
        upwards: Ends | None = None,
        **style: Any,  # noqa: ANN401 - of a line
    ) -> None:
        """Draws a cell with its intervals, when the axes have their limits.

        A sure pass is filled, an undecided cell or a reference half, a failure hollow.
        """
        colour = self.colour(cell)
        whisker(axis, place, colour, across=across, upwards=upwards)
        outcome = cell.outcome if cell.sure is None else cell.sure
        half = cell.is_reference or outcome is Outcome.UNDECIDED
        axis.plot(
            *place,
            **{"marker": "o", **style},
            linestyle="none",
            markersize=4.2,
            color=colour,
            fillstyle="left" if half else "full",
            markerfacecolor=colour if half or outcome is Outcome.PASSED else GROUND,
            markerfacecoloralt=GROUND,
            markeredgewidth=1.0,
            zorder=3,
        )


def marks(data: ReportData) -> str:
    """The sentence of a caption that says what the marks mean."""
    return (
        f" Filled marks pass and hollow ones fail, each {data.verdict_words} sure; half-filled "
        f"ones are undecided, or references. Bars are {data.interval_words} intervals."
    )


def ends(interval: Interval | None, beyond: float = 0.0) -> Ends | None:
    """Both ends of an interval, moved by ``beyond``; None without one."""
    return None if interval is None else (interval.lower + beyond, interval.upper + beyond)


def by_task(
    data: ReportData,
    shift: str,
    keep: Callable[[CellResult], object],
    draw: Callable[..., None],
) -> Iterator[tuple[str, Draw]]:
    """A panel per task with the scored cells of a shift that are to be kept."""
    for task in data.tasks:
        scored = [c for c in data.cells if (c.shift, c.task) == (shift, task) and c.score]
        cells = [cell for cell in scored if keep(cell)]
        title = dotted(task * (len(data.tasks) > 1), shift * (len(data.shifts) > 1))
        if cells:
            yield title, partial(draw, data=data, cells=cells, title=title)


def threshold(axis: Axes, value: float) -> None:
    """A threshold across the axes, with its value at the end."""
    axis.axhline(value, **DOTTED, label="threshold")
    place = axis.get_yaxis_transform()
    text: dict[str, Any] = {"color": SOFT, "fontsize": 6.5, "va": "center", "transform": place}
    axis.text(1.0, value, f" {value:g}", **text)


def levels(data: ReportData, shift: str) -> Plate:
    """One panel per task: the paper's Fig. full-sweep-diagnostics for one shift."""
    success = any(cell.success is not None for cell in data.cells if cell.shift == shift)
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
        panels=tuple(by_task(data, shift, lambda cell: cell.level is not None, _draw_levels)),
        size=(2.9, 1.15 * (2 + success) + 0.35),
        rows=2 + success,
    )


def _draw_levels(
    axes: Sequence[Axes], data: ReportData, cells: Sequence[CellResult], title: str
) -> None:
    thresholds = next(cell.score.verdict.thresholds for cell in cells if cell.score)
    limits = {"success": None, "ir_relative": thresholds.ir, "sr": thresholds.sr}
    for axis, (name, limit) in zip(axes, list(limits.items())[-len(axes) :], strict=True):
        if limit is None:
            clean = [c.clean_success for c in cells if not c.level and c.clean_success is not None]
            for rate in {100 * statistics.fmean(clean)} if clean else ():
                dashed = {**DOTTED, "linestyle": (0, (4, 2))}
                axis.axhline(rate, **dashed, label="clean frames")
            axis.set_ylabel("success (%)")
        else:
            threshold(axis, limit)
            highest = max([1.0, *(x for c in cells if (x := _number(c, name)) is not None)])
            axis.set(ylim=(-0.06 * highest, 1.06 * highest), ylabel=BY_NAME[name].title)
        _draw_runs(axis, data, cells, name)
        axis.margins(x=0.1, y=0.12)
    axes[0].set_title(title)
    axes[-1].set_xlabel(data.level_axis)


def _number(cell: CellResult, name: str) -> float | None:
    if name == "success":
        return None if cell.success is None else 100 * cell.success
    found: float | None = cell.value(name)
    return found


def _draw_runs(axis: Axes, data: ReportData, cells: Sequence[CellResult], name: str) -> None:
    """Draws every run at its level, side by side, and a line through the means."""
    hues = Hues(data)
    at: dict[float, list[tuple[CellResult, float]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.level or 0.0):
        value = _number(cell, name)
        if value is not None:
            at.setdefault(cell.level or 0.0, []).append((cell, value))
    means = [statistics.fmean(value for _, value in found) for found in at.values()]
    axis.plot(list(at), means, color=INK, linewidth=1.1, zorder=2, label="mean of runs")
    gap = float(min(np.diff(list(at)), default=1.0))
    for level, found in at.items():
        reach = min(0.3, 0.2 * (len(found) - 1)) * gap
        asides = np.linspace(-reach, reach, len(found)).tolist()
        for (cell, value), aside in zip(found, asides, strict=True):
            hues.mark(axis, (level + aside, value), cell, upwards=ends(cell.interval(name)))


def plane(data: ReportData) -> Plate:
    """One panel per shift, a point per checkpoint that has a reference."""
    shown = [cell for cell in data.cells if (cell.value("ir_relative") or 0) > 0]
    panels = []
    for shift in dict.fromkeys(cell.shift for cell in shown):
        cells = [cell for cell in shown if cell.shift == shift]
        title = shift if len(data.shifts) > 1 else ""
        panels.append((title, partial(_draw_plane, data=data, cells=cells, title=title)))
    return Plate(
        key="plane",
        shift="",
        title="Which checkpoints pass",
        caption="Each mark is a checkpoint; it passes in the shaded corner, where relative IR is "
        "at most, and SR at least, its threshold. Bottom left is the trap: a model that ignores "
        f"the perturbation because it ignores everything.{marks(data)}",
        panels=tuple(panels),
        size=(3.1, 2.6),
    )


def _draw_plane(
    axes: Sequence[Axes], data: ReportData, cells: list[CellResult], title: str
) -> None:
    (axis,) = axes
    hues, tasks = Hues(data), data.tasks
    limits = next(cell.score.verdict.thresholds for cell in cells if cell.score)
    marks = [cell.value("ir_relative") for cell in cells] + [limits.ir, 1.0]
    wide = max(marks) / min(marks) > _LOG_BEYOND
    left, right = (min(marks) / 2 if wide else 0.0), max(marks) * 1.3
    if wide:
        logarithmic(axis, "x", left, right)
    axis.set(xlim=(left, right), ylim=(-0.04, 1.05), ylabel="SR")
    axis.set(xlabel="relative IR" + ", log scale" * wide, title=title)
    corner: dict[str, Any] = {"color": REGION, "linewidth": 0, "zorder": 0, "label": "passes"}
    axis.fill_between([left, limits.ir], limits.sr, 1.05, **corner)
    axis.axvline(limits.ir, **DOTTED)
    threshold(axis, limits.sr)
    for cell in cells:
        across, upwards = ends(cell.interval("ir_relative")), ends(cell.interval("sr"))
        place = (cell.value("ir_relative"), cell.value("sr"))
        shape = marker(tasks.index(cell.task))
        hues.mark(axis, place, cell, across, upwards, label=hues.label(cell), marker=shape)
    for index, task in enumerate(tasks if len(tasks) > 1 else ()):
        axis.plot([], [], linestyle="none", color=SOFT, marker=marker(index), label=task)


def distributions(data: ReportData, shift: str) -> Plate:
    """One panel per task, a curve per checkpoint."""
    return Plate(
        key="distributions",
        shift=shift,
        title="Anchor by anchor",
        caption="Top: fraction of anchors whose normalised radius R is at most x. The mark is raw "
        "IR; a checkpoint meets the IR threshold when it lies left of the dotted vertical line. "
        "Bottom: fraction of eligible anchors whose different-state distance D is at most x. The "
        "mark is what D must exceed, raw IR plus the margin; a checkpoint meets the SR threshold "
        f"when it lies below the dotted line. Both in clean one-step motions.{marks(data)}",
        panels=tuple(by_task(data, shift, lambda cell: cell.values, _draw_anchors)),
        size=(3.1, 3.1),
        rows=2,
    )


def _draw_anchors(
    axes: Sequence[Axes], data: ReportData, cells: list[CellResult], title: str
) -> None:
    top, bottom = axes
    hues, drawn = Hues(data), np.empty(0)
    known = [(cell, cell.values, cell.score) for cell in cells if cell.values and cell.score]
    for cell, values, score in known:
        far = values.different_state_distance
        radius, distance = np.sort(values.radius), np.sort(far[~np.isnan(far)])
        # Height i / (n - 1): where the quantile of the protocol, linearly interpolated, lies.
        style: dict[str, Any] = {"color": hues.colour(cell), "linewidth": 0.9}
        top.plot(radius, np.linspace(0, 1, len(radius)), **style, label=hues.label(cell))
        steps = np.arange(1, len(distance) + 1) / max(1, len(distance))
        bottom.plot(distance, steps, **style, drawstyle="steps-post")
        drawn = np.concatenate([drawn, radius, distance])
        if score.reference:
            top.axvline(score.verdict.thresholds.ir * score.reference.ir_raw, **DOTTED)
    for height in {round(1 - score.verdict.thresholds.sr, 12) for _, _, score in known}:
        threshold(bottom, height)
    log = len(drawn) > 0 and float(drawn.min()) > 0
    if log:
        logarithmic(bottom, "x", float(drawn.min()) / 1.2, float(drawn.max()) * 1.2)
    top.set(title=title, ylabel="anchors, R ≤ x", ylim=(-0.03, 1.03))
    across = "clean one-step motions" + ", log scale" * log
    bottom.set(xlabel=across, ylabel="anchors, D ≤ x", ylim=(-0.03, 1.03))
    for cell, _, score in known:
        protocol, ir, rate = cell.cell.protocol, cell.interval("ir_raw"), cell.interval("sr")
        hues.mark(top, (score.checkpoint.ir_raw, protocol.quantile), cell, ends(ir))
        place = (wanted(cell), 1 - score.checkpoint.sr)
        upwards = None if rate is None else (1 - rate.upper, 1 - rate.lower)
        hues.mark(bottom, place, cell, ends(ir, protocol.margin), upwards)
