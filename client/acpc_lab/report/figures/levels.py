"""Draws numbers over the augmentation level, with the thresholds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from acpc_lab.plotting import INK
from acpc_lab.report.figures.plate import (
    DOTTED,
    Hues,
    Key,
    Panel,
    Plate,
    by_task,
    ends,
    mark,
    threshold,
)
from acpc_lab.report.model import Measurement, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUCCESS_CAPTION = (
    "Top: planning success under the shift; dashed, that of the unaugmented checkpoint on clean "
    "frames. "
)
_CAPTION = (
    "Relative IR (lower is better) and SR (higher is better) over the {level}. The line joins the "
    "means of the training runs, the marks are the single runs. Dotted: the thresholds."
)
_LABELS = {"success": "success (%)", "ir_relative": "relative IR", "sr": "SR"}


@dataclass(frozen=True)
class _Panel:
    """Cells by level, with a line through their means; a row of axes for each quantity.

    Attributes:
        axis: What the levels are of.
        clean: Success on clean frames, drawn across the first axes; None: not known.
    """

    title: str
    axis: str
    rows: Sequence[str]
    cells: Sequence[Measurement]
    hues: Hues
    clean: float | None

    def draw(self, axes: Sequence[Axes]) -> None:
        limits = next(cell.score.verdict.thresholds for cell in self.cells if cell.score)
        for axis, row in zip(axes, self.rows, strict=True):
            if row != "success":
                threshold(axis, limits.ir if row == "ir_relative" else limits.sr)
                highest = self._highest(row)
                axis.set_ylim(-0.06 * highest, 1.06 * highest)
            self._draw_row(axis, row)
            axis.set_ylabel(_LABELS[row])
            axis.margins(x=0.1, y=0.12)
        if self.clean is not None:
            axes[0].axhline(self.clean, **{**DOTTED, "linestyle": (0, (4, 2))})
        axes[0].set_title(self.title)
        axes[-1].set_xlabel(self.axis)

    def _draw_row(self, axis: Axes, row: str) -> None:
        levels = sorted({cell.level for cell in self.cells if cell.level is not None})
        gap = float(min(np.diff(levels), default=1.0))
        known = [(cell, value) for cell in self.cells if (value := _of(cell, row)) is not None]
        at = {level: [pair for pair in known if pair[0].level == level] for level in levels}
        means = [(x, statistics.fmean(v for _, v in found)) for x, found in at.items() if found]
        if means:
            axis.plot(*zip(*means, strict=True), color=INK, linewidth=1.1, zorder=2)
        for level, found in at.items():
            reach = min(0.3, 0.2 * (len(found) - 1)) * gap
            asides = np.linspace(-reach, reach, len(found)).tolist()
            for (cell, value), aside in zip(found, asides, strict=True):
                interval = None if row == "success" else ends(cell.interval(row))
                mark(axis, (level + aside, value), cell, self.hues, upwards=interval)

    def _highest(self, row: str) -> float:
        """Finds the end of an axis; intervals that reach far beyond all marks are cut."""
        values = [x for cell in self.cells if (x := _of(cell, row)) is not None]
        marks = max([1.0, *values])
        uppers = [found.upper for cell in self.cells if (found := cell.interval(row))]
        return max(marks, *(min(x, 1.5 * marks) for x in uppers * (row == "ir_relative")), 0.0)


def _of(cell: Measurement, row: str) -> float | None:
    if row != "success":
        found: float | None = cell.value(row)
        return found
    return None if cell.success is None else 100 * cell.success


def levels(data: ReportData, shift: str) -> Plate:
    """One panel per task: the paper's Fig. full-sweep-diagnostics for one shift."""
    hues = Hues(data)
    success = any(cell.success is not None for cell in data.scored(shift))
    rows = (*(("success",) if success else ()), "ir_relative", "sr")
    panels, shown = [], []
    for heading, cells in by_task(data, shift, lambda cell: cell.level is not None):
        if len({cell.level for cell in cells}) < 2:
            continue
        clean = [
            100 * c.clean_success for c in cells if not c.level and c.clean_success is not None
        ]
        mean = statistics.fmean(clean) if success and clean else None
        panel = _Panel(heading, data.level_axis, rows, cells, hues, mean)
        panels.append(Panel(heading, panel.draw))
        shown += cells
    return Plate(
        key="levels",
        shift=shift,
        title="Level by level",
        caption=_SUCCESS_CAPTION * success + _CAPTION.format(level=data.level_words),
        panels=tuple(panels),
        legend=(*hues.marks(shown), Key("mean of runs", INK), Key("threshold", mark="dots")),
        size=(2.9, 1.15 * len(rows) + 0.35),
        rows=len(rows),
    )
