"""Fig. cross-stressor-ir-sr-comparison in the paper, and the pairs behind its rank correlation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from acpc_lab.plotting import INK, hue, marker, panels, zero_line
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.shifts import ShiftPair, ShiftParameters, ShiftRows, ShiftSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAIN, DELTA = "change of success (points)", "change of the screen score S"


def draw(evidence: Evidence[ShiftRows, ShiftParameters, ShiftSummary]) -> Mapping[str, Figure]:
    """The figures of a cross-shift comparison."""
    return {"bars": bars(evidence.summary.pairs), "pairs": scatter(evidence.summary.pairs)}


def bars(pairs: Sequence[ShiftPair]) -> Figure:
    """Means over runs by task and shift: behaviour on the left, the diagnostic on the right."""
    figure, (left, right) = panels(2, width=3.0)
    _bars(left, pairs, "success_gain", GAIN)
    _bars(right, pairs, "delta_score", DELTA)
    left.legend()
    return figure


def _bars(axis: Axes, pairs: Sequence[ShiftPair], field: str, label: str) -> None:
    tasks = list(dict.fromkeys(pair.task for pair in pairs))
    shifts = list(dict.fromkeys(pair.shift for pair in pairs))
    width = 0.8 / len(shifts)
    for index, shift in enumerate(shifts):
        for place, task in enumerate(tasks):
            values = [
                getattr(pair, field) for pair in pairs if (pair.task, pair.shift) == (task, shift)
            ]
            if values:
                at = place + (index - (len(shifts) - 1) / 2) * width
                named = None if place else shift
                axis.bar(at, np.mean(values), 0.9 * width, color=hue(index), label=named)
                axis.plot([at] * len(values), values, ".", color=INK, markersize=3)
    axis.set_xticks(range(len(tasks)), tasks)
    axis.set_ylabel(label)
    zero_line(axis)


def scatter(pairs: Sequence[ShiftPair]) -> Figure:
    """Every pair; filled when the sign of delta S tells what the behaviour does."""
    figure, (axis,) = panels(1, width=4.2, height=2.8)
    shifts = list(dict.fromkeys(pair.shift for pair in pairs))
    tasks = list(dict.fromkeys(pair.task for pair in pairs))
    for pair in pairs:
        colour = hue(tasks.index(pair.task))
        axis.plot(
            pair.delta_score,
            pair.success_gain,
            marker(shifts.index(pair.shift)),
            color=colour,
            markerfacecolor=colour if pair.agrees else "none",
            markersize=5,
        )
    for index, task in enumerate(tasks):
        axis.plot([], [], "s", color=hue(index), label=task)
    for index, shift in enumerate(shifts):
        axis.plot([], [], marker(index), color=INK, label=shift)
    axis.plot([], [], "o", color=INK, markerfacecolor="none", label="sign disagrees")
    zero_line(axis)
    axis.axvline(0, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    axis.set_xlabel(DELTA)
    axis.set_ylabel(GAIN)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
