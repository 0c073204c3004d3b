"""Draws the IR-SR plane with the region where a checkpoint passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acpc_client import Outcome

from acpc_lab.plotting import light, logarithmic
from acpc_lab.report.figures.levels import ir_relative, separation
from acpc_lab.report.figures.plate import Hues, Key, Panel, Plate, ends, mark, threshold
from acpc_lab.report.model import Measurement, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Beyond this ratio of the largest to the smallest relative IR, linear axes hide the small ones.
_LOG_BEYOND = 8.0


def plane(data: ReportData) -> Plate:
    """One panel per shift, a point per checkpoint that has a reference."""
    hues = Hues(data, tasks=True)
    places = [cell for cell in data.cells if (ir_relative(cell) or 0) > 0]
    found = [ir_relative(cell) or 1.0 for cell in places] + [1.0]
    wide = max(found) / min(found) > _LOG_BEYOND
    trapped = sum(not c.is_reference and _ir_alone(c) for c in places)
    panels, shown = [], []
    for shift in data.shifts:
        cells = [cell for cell in places if cell.shift == shift]
        if cells:
            panels.append(_panel(cells, hues, shift, wide=wide, several=len(data.shifts) > 1))
            shown += cells
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


def _ir_alone(cell: Measurement) -> bool:
    """Whether IR passes and SR does not."""
    if cell.score is None:
        return False
    return cell.score.verdict.ir_passed is True and not cell.score.verdict.sr_passed


def _panel(cells: list[Measurement], hues: Hues, shift: str, *, wide: bool, several: bool) -> Panel:
    places = [(ir_relative(cell) or 0.0, separation(cell) or 0.0, cell) for cell in cells]
    thresholds = next(cell.score.verdict.thresholds for cell in cells if cell.score)
    t_ir, t_sr = thresholds.ir or 0.0, thresholds.sr or 0.0

    def draw(axes: Sequence[Axes]) -> None:
        (axis,) = axes
        reach = [x for x, _, _ in places] + [t_ir, 1.0]
        reach += _bars(places, reach, wide=wide)
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
        axis.set_xlabel("relative IR" + (", log scale" if wide else ""))
        axis.set_ylabel("SR")
        if several:
            axis.set_title(shift, pad=10)

    passed = sum(cell.outcome is Outcome.PASSED for cell in cells)
    return Panel(
        shift if several else "",
        draw,
        f"SR against relative IR under {shift}: {passed} of {len(cells)} checkpoints lie in the "
        f"pass region, relative IR at most {t_ir} and SR at least {t_sr}.",
    )


def _bars(
    places: Sequence[tuple[float, float, Measurement]], reach: Sequence[float], *, wide: bool
) -> list[float]:
    """Ends of intervals that the axis shows, cut where they reach far beyond all marks."""
    low, high = (min(reach) / 3, max(reach) * 3) if wide else (min(reach), max(reach) * 1.5)
    found = [interval for _, _, cell in places if (interval := cell.interval("ir_relative"))]
    return [min(max(end, low), high) for one in found for end in (one.lower, one.upper)]
