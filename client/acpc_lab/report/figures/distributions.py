"""Draws per-anchor distributions, and the distance of the two predictions by rollout step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from acpc.arrays import NDArray
from acpc_client import AnchorValues

from acpc_lab.plotting import RULE, logarithmic
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

_DASHES = (0, (3, 1.5))
# With more curves than this, bands would cover one another.
_BANDS = 3
_QUANTILES = (0.1, 0.5, 0.9)


def distributions(data: ReportData, shift: str) -> Plate:
    """One panel per task, a curve per checkpoint."""
    hues = Hues(data)
    panels: list[Panel] = []
    shown: list[Measurement] = []
    log = _reach(data.cells)[0] > 0
    for heading, cells in by_task(data, shift, lambda cell: cell.values):
        draw = partial(_draw_anchors, cells=cells, hues=hues, title=heading, log=log)
        panels.append(Panel(heading, draw))
        shown += cells
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
        legend=(*hues.legend(shown), *hues.marks(shown)),
        size=(3.1, 3.1),
        rows=2,
    )


def _draw_anchors(
    axes: Sequence[Axes], cells: list[Measurement], hues: Hues, title: str, *, log: bool
) -> None:
    top, bottom = axes
    for cell in cells:
        if cell.values is not None:
            _curves(axes, cell.values, hues.colour(cell))
    _thresholds(top, bottom, cells)
    if log:
        low, high = _reach(cells)
        logarithmic(bottom, "x", low / 1.2, high * 1.2)
    top.set_ylabel("anchors, R ≤ x")
    bottom.set_ylabel("anchors, D ≤ x")
    bottom.set_xlabel("clean one-step motions" + ", log scale" * log)
    for axis in axes:
        axis.set_ylim(-0.03, 1.03)
    for cell in cells:
        _marks(top, bottom, cell, hues)
    top.set_title(title)


def _marks(top: Axes, bottom: Axes, cell: Measurement, hues: Hues) -> None:
    """Raw IR on its curve, and below it what D must exceed, with their intervals."""
    raw, sr, protocol = cell.value("ir_raw"), cell.value("sr"), cell.protocol
    ir, rate = cell.interval("ir_raw"), ends(cell.interval("sr"))
    mark(top, (raw, protocol.quantile), cell, hues, across=ends(ir))
    across, upwards = ends(ir, beyond=protocol.margin), rate and (1 - rate[1], 1 - rate[0])
    mark(bottom, (cell.wanted, 1 - sr), cell, hues, across=across, upwards=upwards)


def _curves(axes: Sequence[Axes], values: AnchorValues, colour: str) -> None:
    radius = np.sort(values.radius)
    distance = np.sort(values.different_state_distance[~np.isnan(values.different_state_distance)])
    # Height i / (n - 1): where the quantile of the protocol, linearly interpolated, lies.
    heights = np.linspace(0, 1, len(radius))
    steps = np.arange(1, len(distance) + 1) / max(1, len(distance))
    drawn = ((radius, heights, "default"), (distance, steps, "steps-post"))
    for axis, (x, y, style) in zip(axes, drawn, strict=True):
        axis.plot(x, y, color=colour, linewidth=0.9, drawstyle=style)


def _thresholds(top: Axes, bottom: Axes, cells: Sequence[Measurement]) -> None:
    scores = [cell.score for cell in cells if cell.score is not None]
    bounds = [s.verdict.thresholds.ir * s.reference.ir_raw for s in scores if s.reference]
    if bounds:
        if max(bounds) > min(bounds) * 1.02:
            top.axvspan(min(bounds), max(bounds), color=RULE, alpha=0.3, linewidth=0, zorder=0)
        for bound in sorted({min(bounds), max(bounds)}):
            top.axvline(bound, **DOTTED)
    for quantile in sorted({cell.protocol.quantile for cell in cells}):
        threshold(top, quantile)
    for height in sorted({round(1 - score.verdict.thresholds.sr, 12) for score in scores}):
        threshold(bottom, height)


def _reach(cells: Sequence[Measurement]) -> tuple[float, float]:
    """The smallest and the largest radius or distance that is drawn; 0 where nothing is."""
    known = [cell.values for cell in cells]
    both = [of for it in known if it for of in (it.radius, it.different_state_distance)]
    drawn = np.concatenate([*both, []])
    return (float(np.nanmin(drawn)), float(np.nanmax(drawn))) if len(drawn) else (0.0, 0.0)


def steps(data: ReportData, shift: str) -> Plate:
    """One panel per task; a curve per level, its runs pooled, or per checkpoint."""
    hues = Hues(data)
    panels: list[Panel] = []
    shown: list[Measurement] = []
    measured = [cell.steps for cell in data.cells if cell.steps is not None]
    log = all(float(np.median(found, axis=0).min()) > 0 for found in measured)
    for heading, cells in by_task(data, shift, lambda cell: cell.steps is not None):
        pooled: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
        for cell in cells:
            key = cell.name if cell.level is None else f"level {cell.level:g}"
            if cell.steps is not None:
                pooled.setdefault((key, hues.colour(cell)), []).append(cell.steps)
        curves = {
            key: np.quantile(np.concatenate(parts), _QUANTILES, axis=0)  # (3, H)
            for key, parts in pooled.items()
            if len({part.shape[1] for part in parts}) == 1
        }
        panels.append(Panel(heading, partial(_draw_steps, curves=curves, title=heading, log=log)))
        shown += cells
    bands = "; the band spans the 10 % and 90 % quantiles where few curves leave room for it"
    return Plate(
        key="steps",
        shift=shift,
        title="Step by step",
        caption="Distance of clean and perturbed prediction after each predicted step, in units "
        "of clean one-step motion. Solid: median over anchors (and runs of a level). Dashed: 90 % "
        f"quantile{bands}. A curve that falls forgets the perturbation; one that rises feeds it.",
        panels=tuple(panels),
        legend=(*hues.legend(shown), Key("median"), Key("90 % quantile", mark="dashes")),
        size=(3.1, 2.3),
    )


def _draw_steps(
    axes: Sequence[Axes],
    curves: Mapping[tuple[str, str], NDArray[np.float64]],
    title: str,
    *,
    log: bool,
) -> None:
    """Draws the quantiles (3, H) of every curve, by name and colour, over the predicted steps."""
    (axis,) = axes
    bands = len(curves) <= _BANDS
    for (_, colour), (low, middle, high) in curves.items():
        places = np.arange(1, len(middle) + 1)
        if bands:
            axis.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
        axis.plot(places, middle, color=colour, linewidth=1.3)
        axis.plot(places, high, color=colour, linewidth=0.8, linestyle=_DASHES)
    parts = [curve[0 if bands else 1 :].ravel() for curve in curves.values()]
    drawn = np.concatenate([*parts, np.empty(0)])
    if log and len(drawn):
        logarithmic(axis, "y", float(drawn[drawn > 0].min()) / 1.2, float(drawn.max()) * 1.2)
    else:
        axis.set_ylim(0, None)
    longest = max((curve.shape[1] for curve in curves.values()), default=1)
    axis.set_xticks(range(1, longest + 1))
    axis.set_xlabel("predicted step")
    axis.set_ylabel("clean motions" + ", log scale" * log)
    axis.set_title(title)
