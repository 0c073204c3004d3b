"""Fig. future-drift-runs in the paper: out-of-group MAE of the three regressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from acpc_lab.plotting import joined, panels
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.drift import DriftCell, DriftParameters, DriftRows, DriftSummary
from acpc_lab.tables import groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(evidence: Evidence[DriftRows, DriftParameters, DriftSummary]) -> Mapping[str, Figure]:
    """The figure of an error-drift study."""
    return {"errors": errors(evidence.summary.cells)}


def errors(cells: Sequence[DriftCell]) -> Figure:
    """A panel per task; compare within a panel only, because latent scales differ."""
    tasks = groups(cell.task for cell in cells)
    figure, axes = panels(len(tasks))
    for axis, ((task,), held) in zip(axes, tasks.items(), strict=True):
        mine = [cells[index] for index in held]
        joined(
            axis,
            [(cell.base, cell.control, cell.acpc) for cell in mine],
            ("Base", "+Control", "+ACPC"),
        )
        axis.set_title(task)
    axes[0].set_ylabel("out-of-group MAE of the error drift")
    return figure
