"""Draws per-anchor distributions, and the distance of the two predictions by rollout step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc.arrays import NDArray

from acpc_lab.plotting import logarithmic
from acpc_lab.report.figures import DOTTED, Hues, Plate, by_task, ends, marks, threshold
from acpc_lab.report.model import ReportData
from acpc_lab.report.receipts import wanted
from acpc_lab.sweeps import CellResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# With more curves than this, bands would cover one another.
_BANDS = 3


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


def steps_of(cell: CellResult) -> NDArray[np.float64] | None:
    """Distance at each rollout step in clean motions, (n, H); None where that is not known."""
    found = None if cell.values is None else cell.values.step_radius
    return found if found is not None and found.ndim == 2 else None


def steps(data: ReportData, shift: str) -> Plate:
    """One panel per task; a curve per level, its runs pooled, or per checkpoint."""
    return Plate(
        key="steps",
        shift=shift,
        title="Step by step",
        caption="Distance of clean and perturbed prediction after each predicted step, in clean "
        "one-step motions: the median over anchors (and runs of a level). Where few curves leave "
        "room for it, a band spans the 10 % and 90 % quantiles. A curve that falls forgets the "
        "perturbation; one that rises feeds it.",
        panels=tuple(by_task(data, shift, lambda c: steps_of(c) is not None, _draw_steps)),
        size=(3.1, 2.3),
    )


def _draw_steps(
    axes: Sequence[Axes], data: ReportData, cells: list[CellResult], title: str
) -> None:
    (axis,) = axes
    hues = Hues(data)
    pooled: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for cell in cells:
        found = steps_of(cell)
        if found is not None:
            pooled.setdefault((hues.label(cell), hues.colour(cell)), []).append(found)
    for (label, colour), parts in pooled.items():
        if len({part.shape[1] for part in parts}) == 1:
            low, middle, high = np.quantile(np.concatenate(parts), (0.1, 0.5, 0.9), axis=0)  # (H)
            places = np.arange(1, len(middle) + 1)
            if len(pooled) <= _BANDS:
                axis.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
            axis.plot(places, middle, color=colour, linewidth=1.3, label=label)
    axis.locator_params(axis="x", integer=True)
    axis.set(xlabel="predicted step", ylabel="clean motions", title=title)
    axis.set_ylim(bottom=0)
