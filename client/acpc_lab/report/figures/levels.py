"""Draws numbers over the augmentation level, with the thresholds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from acpc_client import Interval

from acpc_lab.plotting import light
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
_LEVELS_CAPTION = (
    "Relative IR (lower is better) and SR (higher is better) over the {level}. The line joins the "
    "means of the training runs, the marks are the single runs. Dotted: the thresholds."
)
_THRESHOLD = Key("threshold", "soft", "dots")


class Scale(NamedTuple):
    """One of the axes of a panel.

    Attributes:
        limit: The threshold of this name.
        least: Where the axis ends at least; None: with the marks.
    """

    label: str
    value: Callable[[Measurement], float | None]
    interval: Callable[[Measurement], Interval | None]
    limit: str = ""
    least: float | None = 1.0


_IR = Scale(
    "relative IR", lambda c: c.value("ir_relative"), lambda c: c.interval("ir_relative"), "ir"
)
_SR = Scale("SR", lambda c: c.value("sr"), lambda c: c.interval("sr"), "sr")
_SUCCESS = Scale(
    "success (%)",
    lambda c: None if c.success is None else 100 * c.success,
    lambda c: None,
    least=None,
)


@dataclass(frozen=True)
class _Panel:
    """Cells by level; those of one line have one mean at each level, and a line joins the means.

    Attributes:
        lines: Cells with their level, by line; the colour of each.
        axis: What the levels are of.
        clean: Success on clean frames, drawn across the first axes; None: not known.
        factor: Whether levels are of the factor in the title, each with a tick.
    """

    title: str
    axis: str
    rows: Sequence[Scale]
    lines: Sequence[tuple[str, Sequence[tuple[float, Measurement]]]]
    hues: Hues
    clean: float | None = None
    factor: bool = False

    def draw(self, axes: Sequence[Axes]) -> None:
        every = [cell for _, line in self.lines for _, cell in line]
        limits = next(cell.score.verdict.thresholds for cell in every if cell.score)
        for axis, row in zip(axes, self.rows, strict=True):
            if row.limit:
                threshold(axis, getattr(limits, row.limit))
            if row.least is not None:
                highest = _highest(every, row)
                axis.set_ylim(-0.06 * highest, 1.06 * highest)
            self._draw_row(axis, row)
            axis.set_ylabel(row.label)
            axis.margins(x=0.1, y=0.12)
        if self.clean is not None:
            axes[0].axhline(self.clean, **{**DOTTED, "linestyle": (0, (4, 2))})
        axes[0].set_title(self.title)
        axes[-1].set_xlabel(self.axis)
        if self.factor:
            axes[-1].set_xticks(self.levels, [f"{level:.2g}" for level in self.levels])

    @property
    def levels(self) -> list[float]:
        return sorted({level for _, line in self.lines for level, _ in line})

    def _draw_row(self, axis: Axes, row: Scale) -> None:
        levels = self.levels
        gap = float(min(np.diff(levels), default=1.0))
        for colour, line in self.lines:
            known = {at: [found for x, c in line if x == at and (found := row.value(c)) is not None]
                     for at in levels}  # fmt: skip
            means = [(at, statistics.fmean(found)) for at, found in known.items() if found]
            if means:
                axis.plot(*zip(*means, strict=True), color=light(colour), linewidth=1.1, zorder=2)
        for at in levels:
            here = [cell for _, line in self.lines for level, cell in line if level == at]
            reach = min(0.3, 0.2 * (len(here) - 1)) * gap
            for cell, aside in zip(here, np.linspace(-reach, reach, len(here)), strict=True):
                found, interval = row.value(cell), ends(row.interval(cell))
                if found is not None:
                    beside = f" ({interval[0]:.3g} to {interval[1]:.3g})" if interval else ""
                    of = f", {self.title} {at:.2g}" * self.factor
                    tip = f"{cell.name}{of}: {found:.3g}{beside}"
                    mark(axis, (at + float(aside), found), cell, self.hues, tip, upwards=interval)


def _highest(cells: Sequence[Measurement], row: Scale) -> float:
    """Finds the end of an axis; intervals that reach far beyond all marks are cut."""
    values = [found for cell in cells if (found := row.value(cell)) is not None]
    marks = max([row.least or 0.0, *values])
    uppers = [end.upper for cell in cells if row.limit == "ir" and (end := row.interval(cell))]
    return max(marks, *(min(upper, 1.5 * marks) for upper in uppers), 0.0)


def _mean(cells: Sequence[Measurement], name: str) -> str:
    found = [value for cell in cells if (value := cell.value(name)) is not None]
    return f"{statistics.fmean(found):.2f}" if found else "unknown"


def levels(data: ReportData, shift: str) -> Plate:
    """One panel per task: the paper's Fig. full-sweep-diagnostics for one shift."""
    hues = Hues(data)
    success = any(cell.success is not None for cell in data.scored(shift))
    rows = ((_SUCCESS,) if success else ()) + (_IR, _SR)
    panels, shown = [], []
    for of in by_task(data, shift, lambda cell: cell.level is not None):
        placed = [(cell.level, cell) for cell in of.cells if cell.level is not None]
        at = {level: [cell for x, cell in placed if x == level] for level, _ in placed}
        if len(at) < 2:
            continue
        clean = [100 * c.clean_success for c in at.get(0, []) if c.clean_success is not None]
        mean = statistics.fmean(clean) if success and clean else None
        panel = _Panel(of.heading, data.level_axis, rows, [("ink", placed)], hues, mean)
        means = "; ".join(
            f"{level:g}: {_mean(at[level], 'ir_relative')}, {_mean(at[level], 'sr')}"
            for level in sorted(at)
        )
        limits = next(cell.score.verdict.thresholds for cell in of.cells if cell.score)
        words = (
            f"Relative IR and SR over the {data.level_words} for {of.where}, means of the runs: "
            f"{means}. Thresholds: {limits.ir} and {limits.sr}."
        )
        panels.append(Panel(of.heading, panel.draw, words))
        shown += of.cells
    return Plate(
        key="levels",
        shift=shift,
        title="Level by level",
        caption=_SUCCESS_CAPTION * success + _LEVELS_CAPTION.format(level=data.level_words),
        panels=tuple(panels),
        legend=(*hues.marks(shown), Key("mean of runs", "ink"), _THRESHOLD),
        size=(2.9, 1.15 * len(rows) + 0.35),
        rows=len(rows),
    )
