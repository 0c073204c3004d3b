"""Draws per-anchor distributions, and the distance of the two predictions by rollout step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc.arrays import NDArray

from acpc_lab.plotting import RULE, logarithmic
from acpc_lab.report.canvas import DOTTED, Hues, Panel, Plate, by_task, ends, marks, threshold
from acpc_lab.report.model import ReportData
from acpc_lab.report.receipts import wanted
from acpc_lab.sweeps import CellResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# With more curves than this, bands would cover one another.
_BANDS = 3
_QUANTILES = (0.1, 0.5, 0.9)


def distributions(data: ReportData, shift: str) -> Plate:
    """One panel per task, a curve per checkpoint."""
    log = _reach(data.cells)[0] > 0
    return Plate(
        key="distributions",
        shift=shift,
        title="Anchor by anchor",
        caption="Top: fraction of anchors whose normalised radius R is at most x. The mark is raw "
        "IR; a checkpoint meets the IR threshold when it lies left of the dotted vertical line (a "
        "band where references differ). Bottom: fraction of eligible anchors whose different-state "
        "distance D is at most x. The mark is what D must exceed, raw IR plus the margin; a "
        "checkpoint meets the SR threshold when it lies below the dotted line. Both in units of "
        f"clean one-step motion.{marks(data)}",
        panels=tuple(
            Panel(title, partial(_draw_anchors, data=data, cells=cells, title=title, log=log))
            for title, cells in by_task(data, shift, lambda cell: cell.values)
        ),
        size=(3.1, 3.1),
        rows=2,
    )


def _draw_anchors(
    axes: Sequence[Axes], data: ReportData, cells: list[CellResult], title: str, *, log: bool
) -> None:
    top, bottom = axes
    hues = Hues(data)
    for cell in cells:
        values = cell.values
        assert values is not None  # noqa: S101 - such cells were left out
        far = values.different_state_distance
        radius, distance = np.sort(values.radius), np.sort(far[~np.isnan(far)])
        # Height i / (n - 1): where the quantile of the protocol, linearly interpolated, lies.
        style: dict[str, Any] = {"color": hues.colour(cell), "linewidth": 0.9}
        top.plot(radius, np.linspace(0, 1, len(radius)), **style, label=hues.label(cell))
        steps = np.arange(1, len(distance) + 1) / max(1, len(distance))
        bottom.plot(distance, steps, **style, drawstyle="steps-post")
    _draw_bounds(top, bottom, cells)
    if log:
        low, high = _reach(cells)
        logarithmic(bottom, "x", low / 1.2, high * 1.2)
    top.set(title=title, ylabel="anchors, R ≤ x", ylim=(-0.03, 1.03))
    across = "clean one-step motions" + ", log scale" * log
    bottom.set(xlabel=across, ylabel="anchors, D ≤ x", ylim=(-0.03, 1.03))
    for cell in cells:
        raw, sr, protocol = cell.value("ir_raw"), cell.value("sr"), cell.cell.protocol
        ir, rate = cell.interval("ir_raw"), ends(cell.interval("sr"))
        hues.mark(top, (raw, protocol.quantile), cell, ends(ir))
        upwards = rate and (1 - rate[1], 1 - rate[0])
        hues.mark(bottom, (wanted(cell), 1 - sr), cell, ends(ir, protocol.margin), upwards)


def _draw_bounds(top: Axes, bottom: Axes, cells: Sequence[CellResult]) -> None:
    scores = [cell.score for cell in cells if cell.score is not None]
    bounds = [s.verdict.thresholds.ir * s.reference.ir_raw for s in scores if s.reference]
    if bounds:
        if max(bounds) > min(bounds) * 1.02:
            top.axvspan(min(bounds), max(bounds), color=RULE, alpha=0.3, linewidth=0, zorder=0)
        for bound in sorted({min(bounds), max(bounds)}):
            top.axvline(bound, **DOTTED)
    for quantile in sorted({cell.cell.protocol.quantile for cell in cells}):
        threshold(top, quantile)
    for height in sorted({round(1 - score.verdict.thresholds.sr, 12) for score in scores}):
        threshold(bottom, height)


def _reach(cells: Sequence[CellResult]) -> tuple[float, float]:
    """The smallest and the largest radius or distance that is drawn; 0 where nothing is."""
    known = [cell.values for cell in cells]
    both = [of for it in known if it for of in (it.radius, it.different_state_distance)]
    drawn = np.concatenate([*both, []])
    return (float(np.nanmin(drawn)), float(np.nanmax(drawn))) if len(drawn) else (0.0, 0.0)


def steps_of(cell: CellResult) -> NDArray[np.float64] | None:
    """Distance at each rollout step in clean motions, (n, H); None where that is not known."""
    found = None if cell.values is None else cell.values.step_radius
    return found if found is not None and found.ndim == 2 else None


def steps(data: ReportData, shift: str) -> Plate:
    """One panel per task; a curve per level, its runs pooled, or per checkpoint."""
    measured = [found for cell in data.cells if (found := steps_of(cell)) is not None]
    log = all(float(np.median(found, axis=0).min()) > 0 for found in measured)
    return Plate(
        key="steps",
        shift=shift,
        title="Step by step",
        caption="Distance of clean and perturbed prediction after each predicted step, in units "
        "of clean one-step motion. Solid: median over anchors (and runs of a level). Dashed: 90 % "
        "quantile; the band spans the 10 % and 90 % quantiles where few curves leave room for it. "
        "A curve that falls forgets the perturbation; one that rises feeds it.",
        panels=tuple(
            Panel(title, partial(_draw_steps, data=data, cells=cells, title=title, log=log))
            for title, cells in by_task(data, shift, lambda cell: steps_of(cell) is not None)
        ),
        size=(3.1, 2.3),
    )


def _draw_steps(
    axes: Sequence[Axes], data: ReportData, cells: list[CellResult], title: str, *, log: bool
) -> None:
    (axis,) = axes
    hues = Hues(data)
    pooled: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for cell in cells:
        found = steps_of(cell)
        if found is not None:
            pooled.setdefault((hues.label(cell), hues.colour(cell)), []).append(found)
    drawn: list[float] = []
    longest = 1
    for (label, colour), parts in pooled.items():
        if len({part.shape[1] for part in parts}) > 1:
            continue
        low, middle, high = np.quantile(np.concatenate(parts), _QUANTILES, axis=0)  # (H) each
        places = np.arange(1, len(middle) + 1)
        if len(pooled) <= _BANDS:
            axis.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
            drawn += low.tolist()
        axis.plot(places, middle, color=colour, linewidth=1.3, label=label)
        axis.plot(places, high, color=colour, linewidth=0.8, linestyle=(0, (3, 1.5)))
        drawn += [*middle.tolist(), *high.tolist()]
        longest = max(longest, len(middle))
    above = [value for value in drawn if value > 0]
    if log and above:
        logarithmic(axis, "y", min(above) / 1.2, max(drawn) * 1.2)
    else:
        axis.set_ylim(0, None)
    axis.set_xticks(range(1, longest + 1))
    axis.set(xlabel="predicted step", ylabel="clean motions" + ", log scale" * log, title=title)
