"""Draws per-anchor distributions of normalised radius and different-state distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from acpc_client import CheckpointScore
from numpy.typing import NDArray

from acpc_lab.plotting import TIP, light, logarithmic
from acpc_lab.report.figures.plate import (
    Hues,
    Key,
    Panel,
    Plate,
    dotted,
    ends,
    heading,
    lone_references,
    mark,
    scored,
    threshold,
)
from acpc_lab.report.measures import margin_of, quantile_of
from acpc_lab.report.model import Measurement, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def distributions(data: ReportData, shift: str) -> Plate:
    """One panel per task, a curve per checkpoint."""
    hues = Hues(data)
    panels: list[Panel] = []
    shown: list[Measurement] = []
    lone = False
    low, _ = _reach([cell for cell in data.cells if cell.score])
    for task in data.tasks:
        cells = [
            c for c in scored(data, shift, task) if c.score and c.score.checkpoint.anchor_values
        ]
        if cells:
            panels.append(_panel(data, cells, hues, task, shift, log=low > 0))
            shown += cells
            lone = lone or bool(lone_references(cells))
    return Plate(
        key="distributions",
        shift=shift,
        title="Anchor by anchor",
        caption="Top: fraction of anchors whose normalised radius R is at most x. The mark is raw "
        "IR; a checkpoint meets the IR threshold when it lies left of the dotted upright (a band "
        "where references differ). Bottom: fraction of eligible anchors whose different-state "
        "distance D is at most x. The mark is what D must exceed, raw IR plus the margin; a "
        "checkpoint meets the SR threshold when it lies below the dotted line. Both in units of "
        "clean one-step motion.",
        panels=tuple(panels),
        legend=(
            *hues.legend(shown),
            *((Key("reference", "ink", "dashes"),) if lone else ()),
            *hues.marks(shown),
        ),
        size=(3.1, 3.1),
        rows=2,
    )


def _panel(
    data: ReportData, cells: list[Measurement], hues: Hues, task: str, shift: str, *, log: bool
) -> Panel:
    title = heading(data, task, shift)

    def draw(axes: Sequence[Axes]) -> None:
        top, bottom = axes
        for side in lone_references(cells):
            _curves(
                top, bottom, side, light("ink"), "reference " + side.checkpoint.name, dashed=True
            )
        for cell in cells:
            if cell.score is None:
                continue
            side = cell.score.checkpoint
            _curves(top, bottom, side, light(hues.role(cell)), cell.name)
        _thresholds(top, bottom, cells)
        if log:
            low, high = _reach(cells)
            logarithmic(bottom, "x", low / 1.2, high * 1.2)
        top.set_ylabel("anchors, R ≤ x")
        bottom.set_ylabel("anchors, D ≤ x")
        bottom.set_xlabel("clean one-step motions" + (", log scale" if log else ""))
        for axis in axes:
            axis.set_ylim(-0.03, 1.03)
        for cell in cells:
            _marks(top, bottom, cell, hues)
        top.set_title(title)

    parts: list[str] = []
    for cell in cells:
        values = cell.score and cell.score.checkpoint.anchor_values
        if values and len(parts) < 12:
            radius = float(np.median(values.radius))
            distance = float(np.nanmedian(values.different_state_distance))
            parts.append(f"{cell.name}: median R {radius:.3g}, median D {distance:.3g}")
    rest = f"; and {len(cells) - len(parts)} more" if len(cells) > len(parts) else ""
    where = f"{task} under {shift}" if task else shift
    return Panel(
        title,
        draw,
        f"Cumulative distributions over anchors of normalised radius and different-state distance "
        f"for {where}. {'; '.join(parts)}{rest}.",
    )


def _marks(top: Axes, bottom: Axes, cell: Measurement, hues: Hues) -> None:
    """Raw IR on its curve, and below it what D must exceed, with their intervals."""
    if cell.score is None:
        return
    side, margin = cell.score.checkpoint, margin_of(cell)
    ir, sr = cell.interval("ir_raw"), ends(cell.interval("sr"))
    tip = f"{cell.name}: raw IR {side.ir_raw:.3g}"
    mark(top, (side.ir_raw, quantile_of(cell)), cell, hues, tip, across=ends(ir))
    asked = side.ir_raw + margin
    mark(
        bottom,
        (asked, 1 - side.sr),
        cell,
        hues,
        f"{cell.name}: SR {side.sr:.3g} beyond {asked:.3g}",
        across=ends(ir, beyond=margin),
        upwards=sr and (1 - sr[1], 1 - sr[0]),
    )


def _curves(
    top: Axes, bottom: Axes, side: CheckpointScore, colour: str, name: str, *, dashed: bool = False
) -> None:
    values = side.anchor_values
    if values is None:
        return
    style = (0, (3, 1.5)) if dashed else "-"
    radius = np.sort(values.radius)
    # Height i / (n - 1): where the quantile of the protocol, linearly interpolated, lies.
    heights = np.linspace(0, 1, len(radius))
    distance = values.different_state_distance
    distance = np.sort(distance[~np.isnan(distance)])
    steps = np.arange(1, len(distance) + 1) / max(1, len(distance))
    pairs: list[tuple[Axes, NDArray[np.float64], NDArray[np.float64], str]] = [
        (top, radius, heights, "default"),
        (bottom, distance, steps, "steps-post"),
    ]
    for axis, x, y, drawn in pairs:
        axis.plot(
            x, y, color=colour, linestyle=style, linewidth=0.9, drawstyle=drawn, gid=TIP + name
        )


def _thresholds(top: Axes, bottom: Axes, cells: Sequence[Measurement]) -> None:
    bounds, heights = [], set()
    for cell in cells:
        score = cell.score
        if score is None:
            continue
        if score.reference is not None and score.verdict.thresholds.ir is not None:
            bounds.append(score.verdict.thresholds.ir * score.reference.ir_raw)
        if score.verdict.thresholds.sr is not None:
            heights.add(round(1 - score.verdict.thresholds.sr, 12))
    if bounds:
        if max(bounds) > min(bounds) * 1.02:
            top.axvspan(min(bounds), max(bounds), color=light("raised"), linewidth=0, zorder=0)
        for bound in sorted({min(bounds), max(bounds)}):
            top.axvline(bound, **dotted())
    for quantile in sorted({quantile_of(cell) for cell in cells}):
        threshold(top, quantile)
    for height in sorted(heights):
        threshold(bottom, height)


def _reach(cells: Sequence[Measurement]) -> tuple[float, float]:
    """The smallest and the largest radius or distance that is drawn."""
    sides = [cell.score.checkpoint for cell in cells if cell.score] + lone_references(cells)
    drawn = [side.anchor_values for side in sides if side.anchor_values]
    if not drawn:
        return 0.0, 0.0
    both = np.concatenate([v for a in drawn for v in (a.radius, a.different_state_distance)])
    return float(np.nanmin(both)), float(np.nanmax(both))
