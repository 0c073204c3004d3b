"""Fig. acpc-planner-evidence in the paper: MAE without and with ACPC at the planner's horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from acpc_lab.plotting import INK, hue, marker, panels
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.planner import PlannerCell, PlannerParameters, PlannerRows, PlannerSummary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    evidence: Evidence[PlannerRows, PlannerParameters, PlannerSummary],
) -> Mapping[str, Figure]:
    """The figure of a planner study."""
    return {"errors": errors(evidence.summary.cells)}


def errors(cells: Sequence[PlannerCell]) -> Figure:
    """A line per test task and training run; the thick one is the mean over tasks and runs."""
    figure, (axis,) = panels(1, width=3.6, height=2.8)
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    for index, task in enumerate(tasks):
        mine = [cell for cell in cells if cell.task == task]
        for number, cell in enumerate(mine):
            axis.plot(
                (0, 1),
                (cell.baseline, cell.expanded),
                color=hue(index),
                marker=marker(index),
                markersize=3.5,
                linewidth=0.9,
                label=None if number else task,
            )
    mean = np.mean([(cell.baseline, cell.expanded) for cell in cells], axis=0)
    axis.plot((0, 1), mean, color=INK, linewidth=3, label="mean")
    axis.set_xticks((0, 1), ("baseline", "with ACPC at\nthe planner's horizon"))
    axis.set_xlim(-0.2, 1.2)
    axis.set_ylim(bottom=0)
    axis.set_ylabel("MAE of log(1 + selection regret)")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
