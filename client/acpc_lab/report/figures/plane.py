"""Draws the IR-SR plane with the region where a checkpoint passes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from acpc_client import Outcome

from acpc_lab.plotting import light, logarithmic
from acpc_lab.report.figures.plate import Hues, Key, Panel, Plate, ends, mark, threshold
from acpc_lab.report.model import Measurement, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Beyond this ratio of the largest to the smallest relative IR, linear axes hide the small ones.
_LOG_BEYOND = 8.0


def plane(data: ReportData) -> Plate:
    """One panel per shift, a point per checkpoint that has a reference."""
    hues = Hues(data, tasks=True)
    shown = [cell for cell in data.cells if (cell.value("ir_relative") or 0) > 0]
    found = [cell.value("ir_relative") for cell in shown] + [1.0]
    wide = max(found) / min(found) > _LOG_BEYOND
    verdicts = [cell.score.verdict for cell in shown if cell.score and not cell.is_reference]
    trapped = sum(verdict.ir_passed is True and not verdict.sr_passed for verdict in verdicts)
    several = len(data.shifts) > 1
    panels = []
    for shift in dict.fromkeys(cell.shift for cell in shown):
        cells = [cell for cell in shown if cell.shift == shift]
        limits = next(cell.score.verdict.thresholds for cell in cells if cell.score)
        passed = sum(cell.outcome is Outcome.PASSED for cell in cells)
        words = (
            f"SR against relative IR under {shift}: {passed} of {len(cells)} checkpoints lie in "
            f"the pass region, relative IR at most {limits.ir} and SR at least {limits.sr}."
        )
        title = shift if several else ""
        corner = limits.ir, limits.sr
        draw = partial(_draw, cells=cells, hues=hues, corner=corner, title=title, wide=wide)
        panels.append(Panel(title, draw, words))
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
            Key("passes", "region", "region"),
        ),
        size=(3.1, 2.6),
    )


def _draw(
    axes: Sequence[Axes],
    cells: list[Measurement],
    hues: Hues,
    corner: tuple[float, float],
    title: str,
    *,
    wide: bool,
) -> None:
    (axis,) = axes
    t_ir, t_sr = corner
    places = [(cell.value("ir_relative"), cell.value("sr"), cell) for cell in cells]
    marks = [x for x, _, _ in places] + [t_ir, 1.0]
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
    axis.fill_between([left, t_ir], t_sr, 1.05, color=light("region"), linewidth=0, zorder=0)
    threshold(axis, t_ir, upright=True)
    threshold(axis, t_sr)
    for x, y, cell in places:
        tip = f"{cell.name}: relative IR {x:.3g}, SR {y:.3g}"
        across, upwards = ends(cell.interval("ir_relative")), ends(cell.interval("sr"))
        mark(axis, (x, y), cell, hues, tip, across=across, upwards=upwards)
    axis.set_xlabel("relative IR" + ", log scale" * wide)
    axis.set_ylabel("SR")
    if title:
        axis.set_title(title, pad=10)
