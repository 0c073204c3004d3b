"""Draws success rate, relative IR and SR over the augmentation level, with the thresholds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from acpc_lab.plotting import light
from acpc_lab.report.figures.plate import (
    Hues,
    Key,
    Panel,
    Plate,
    dotted,
    ends,
    heading,
    mark,
    scored,
    threshold,
)
from acpc_lab.report.model import Measurement, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUCCESS = (
    "Top: planning success under the shift; dashed, that of the unaugmented checkpoint on clean "
    "frames. "
)
_CAPTION = (
    "Relative IR (lower is better) and SR (higher is better) over the {level}. The line joins the "
    "means of the training runs, the marks are the single runs. Dotted: the thresholds."
)
Value = Callable[[Measurement], float | None]


def levels(data: ReportData, shift: str) -> Plate:
    """One panel per task: the paper's Fig. full-sweep-diagnostics for one shift."""
    hues = Hues(data)
    with_success = any(cell.success is not None for cell in scored(data, shift))
    panels, shown = [], []
    for task in data.tasks:
        cells = [cell for cell in scored(data, shift, task) if cell.level is not None]
        if len({cell.level for cell in cells}) > 1:
            panels.append(_panel(data, cells, hues, task, shift, with_success=with_success))
            shown += cells
    rows = 3 if with_success else 2
    return Plate(
        key="levels",
        shift=shift,
        title="Level by level",
        caption=_SUCCESS * with_success + _CAPTION.format(level=data.level_words),
        panels=tuple(panels),
        legend=(*hues.marks(shown), Key("mean of runs", "ink"), Key("threshold", "soft", "dots")),
        size=(2.9, 1.15 * rows + 0.35),
        rows=rows,
    )


def _panel(
    data: ReportData,
    cells: list[Measurement],
    hues: Hues,
    task: str,
    shift: str,
    *,
    with_success: bool,
) -> Panel:
    thresholds = next(cell.score.verdict.thresholds for cell in cells if cell.score)
    title = heading(data, task, shift)

    def draw(axes: Sequence[Axes]) -> None:
        rest = list(axes)
        if with_success:
            top = rest.pop(0)
            _curve(top, cells, hues, lambda cell: _percent(cell.success))
            clean = [_percent(cell.clean_success) for cell in cells if cell.level == 0]
            known = [value for value in clean if value is not None]
            if known:
                top.axhline(statistics.fmean(known), **{**dotted(), "linestyle": (0, (4, 2))})
            top.margins(y=0.12)
            top.set_ylabel("success (%)")
        ir, sr = rest
        if thresholds.ir is not None:
            threshold(ir, thresholds.ir)
        highest = _highest(cells)
        ir.set_ylim(-0.04 * highest, 1.06 * highest)
        ir.set_ylabel("relative IR")
        _curve(ir, cells, hues, ir_relative, "ir_relative")
        if thresholds.sr is not None:
            threshold(sr, thresholds.sr)
        sr.set_ylim(-0.06, 1.06)
        _curve(sr, cells, hues, separation, "sr")
        sr.set_ylabel("SR")
        sr.set_xlabel(data.level_axis)
        axes[0].set_title(title)

    described = []
    for level in sorted({cell.level for cell in cells if cell.level is not None}):
        at = [cell for cell in cells if cell.level == level]
        described.append(f"{level:g}: {_mean_text(at, ir_relative)}, {_mean_text(at, separation)}")
    where = f"{task} under {shift}" if task else shift
    return Panel(
        title,
        draw,
        f"Relative IR and SR over the {data.level_words} for {where}, means of the runs: "
        f"{'; '.join(described)}. Thresholds: {thresholds.ir} and {thresholds.sr}.",
    )


def ir_relative(cell: Measurement) -> float | None:
    """Relative IR of a cell, when there is a reference."""
    return None if cell.score is None else cell.score.verdict.ir_relative


def separation(cell: Measurement) -> float | None:
    """SR of a cell."""
    return None if cell.score is None else cell.score.checkpoint.sr


def _percent(rate: float | None) -> float | None:
    return None if rate is None else 100 * rate


def _values(cells: Sequence[Measurement], value: Value) -> list[float]:
    return [found for found in map(value, cells) if found is not None]


def _mean_text(cells: Sequence[Measurement], value: Value) -> str:
    known = _values(cells, value)
    return f"{statistics.fmean(known):.2f}" if known else "unknown"


def _highest(cells: Sequence[Measurement]) -> float:
    """Where the axis of relative IR ends: intervals that reach far beyond all marks are cut."""
    marks = max([1.0, *_values(cells, ir_relative)])
    uppers = [found.upper for cell in cells if (found := cell.interval("ir_relative"))]
    return max(marks, *(min(upper, 1.5 * marks) for upper in uppers), 0.0)


def _curve(
    axis: Axes, cells: list[Measurement], hues: Hues, value: Value, interval: str = ""
) -> None:
    places = sorted({cell.level for cell in cells if cell.level is not None})
    known = [(at, _values([c for c in cells if c.level == at], value)) for at in places]
    drawn = [(at, statistics.fmean(found)) for at, found in known if found]
    axis.plot(*zip(*drawn, strict=True), color=light("ink"), linewidth=1.1, zorder=2)
    gap = min(np.diff(places))
    for at in places:
        here = [cell for cell in cells if cell.level == at]
        for cell, aside in zip(here, _aside(here, gap), strict=True):
            found = value(cell)
            if found is not None:
                tip = f"{cell.name}: {found:.3g}{_told(ends(cell.interval(interval)))}"
                spot = at + aside, found
                mark(axis, spot, cell, hues, tip, upwards=ends(cell.interval(interval)))


def _aside(cells: Sequence[Measurement], gap: float) -> list[float]:
    """How far each of the runs of a level stands beside it, so that no bar hides another."""
    if len(cells) < 2 or not any(cell.evidence for cell in cells):
        return [0.0] * len(cells)
    reach = min(0.3, 0.2 * (len(cells) - 1)) * gap
    return [float(at) for at in np.linspace(-reach, reach, len(cells))]


def _told(found: tuple[float, float] | None) -> str:
    return "" if found is None else f" ({found[0]:.3g} to {found[1]:.3g})"
