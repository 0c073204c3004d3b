"""Draws ACPC by rollout step: how the distance of the two predictions grows or decays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acpc_lab.plotting import TIP, light, logarithmic
from acpc_lab.report.figures.plate import Hues, Key, Panel, Plate, heading, scored
from acpc_lab.report.measures import step_radius_of
from acpc_lab.report.model import Measurement, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# With more curves than this, bands would cover one another.
_BANDS = 3
_QUANTILES = (0.1, 0.5, 0.9)


def steps(data: ReportData, shift: str) -> Plate:
    """One panel per task; a curve per level, its runs pooled, or per checkpoint."""
    hues = Hues(data)
    panels: list[Panel] = []
    shown: list[Measurement] = []
    measured = [found for cell in data.cells if (found := _steps(cell)) is not None]
    log = all(float(np.median(found, axis=0).min()) > 0 for found in measured)
    for task in data.tasks:
        cells = [c for c in scored(data, shift, task) if _steps(c) is not None]
        if cells:
            panels.append(_panel(data, cells, hues, task, shift, log=log))
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
        legend=(*hues.legend(shown), Key("median", "soft"), Key("90 % quantile", "soft", "dashes")),
        size=(3.1, 2.3),
    )


def _steps(cell: Measurement) -> NDArray[np.float64] | None:
    return None if cell.score is None else step_radius_of(cell.score.checkpoint)


def _panel(
    data: ReportData, cells: list[Measurement], hues: Hues, task: str, shift: str, *, log: bool
) -> Panel:
    title = heading(data, task, shift)
    pooled: dict[str, list[NDArray[np.float64]]] = {}
    roles: dict[str, str] = {}
    for cell in cells:
        found = _steps(cell)
        if found is not None:
            key = cell.name if cell.level is None else f"level {cell.level:g}"
            pooled.setdefault(key, []).append(found)
            roles.setdefault(key, hues.role(cell))
    curves = {
        key: np.quantile(np.concatenate(parts), _QUANTILES, axis=0)  # (3, H)
        for key, parts in pooled.items()
        if len({part.shape[1] for part in parts}) == 1
    }

    def draw(axes: Sequence[Axes]) -> None:
        (axis,) = axes
        _draw(axis, curves, roles, log=log)
        axis.set_title(title)

    ends = [
        f"{key}: median {curve[1][0]:.3g} at step 1, {curve[1][-1]:.3g} at step {curve.shape[1]}"
        for key, curve in curves.items()
    ]
    where = f"{task} under {shift}" if task else shift
    return Panel(
        title,
        draw,
        f"Distance of clean and perturbed prediction by rollout step for {where}. "
        f"{'; '.join(ends[:12])}.",
    )


def _draw(
    axis: Axes, curves: Mapping[str, NDArray[np.float64]], roles: Mapping[str, str], *, log: bool
) -> None:
    """Draws the quantiles (3, H) of every curve over the predicted steps."""
    for key, (low, middle, high) in curves.items():
        places = np.arange(1, len(middle) + 1)
        colour = light(roles[key])
        if len(curves) <= _BANDS:
            axis.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
        axis.plot(places, middle, color=colour, linewidth=1.3, gid=f"{TIP}{key}, median")
        axis.plot(
            places,
            high,
            color=colour,
            linewidth=0.8,
            linestyle=(0, (3, 1.5)),
            gid=f"{TIP}{key}, 90 % quantile",
        )
    shown = list(curves.values()) if len(curves) <= _BANDS else [c[1:] for c in curves.values()]
    if log and shown:
        lowest = min(float(curve[curve > 0].min()) for curve in shown)
        highest = max(float(curve.max()) for curve in shown)
        logarithmic(axis, "y", lowest / 1.2, highest * 1.2)
    else:
        axis.set_ylim(0, None)
    longest = max((curve.shape[1] for curve in curves.values()), default=1)
    axis.set_xticks(range(1, longest + 1))
    axis.set_xlabel("predicted step")
    axis.set_ylabel("clean motions" + (", log scale" if log else ""))
