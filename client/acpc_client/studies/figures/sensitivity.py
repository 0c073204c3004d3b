"""Fig. local-gaussian-sensitivity in the paper: ratio to the unaugmented checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from acpc_client.studies.catalogue import Evidence
from acpc_client.studies.figures.base import hue, panels, zero_line
from acpc_client.studies.sensitivity import (
    METHODS,
    Sensitivity,
    SensitivityParameters,
    SensitivityRatio,
    SensitivityRows,
    SensitivitySummary,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"jvp": "JVP", "finite_difference": "finite difference"}


def draw(
    evidence: Evidence[SensitivityRows, SensitivityParameters, SensitivitySummary],
) -> Mapping[str, Figure]:
    """The figures of a sensitivity study."""
    summary = evidence.summary
    drawn = {"checkpoints": checkpoints(summary.checkpoints)}
    return drawn | ({"ratios": ratios(summary.ratios)} if summary.ratios else {})


def ratios(held: Sequence[SensitivityRatio]) -> Figure:
    """Bars of the ratio by checkpoint and method, with a standard error; below one is lower."""
    figure, (axis,) = panels(1, width=max(3.2, 0.5 * len(held)), height=2.4)
    _bars(
        axis,
        [(_name(r.task, r.run, r.level), r.method, r.ratio, r.standard_error) for r in held],
    )
    zero_line(axis, 1.0)
    axis.set_ylabel("sensitivity over the unaugmented one's")
    return figure


def checkpoints(held: Sequence[Sensitivity]) -> Figure:
    """The squared Frobenius norm of every checkpoint, with a standard error."""
    figure, (axis,) = panels(1, width=max(3.2, 0.5 * len(held)), height=2.4)
    _bars(
        axis,
        [(_name(r.task, r.run, r.level), r.method, r.mean, r.standard_error) for r in held],
    )
    axis.set_yscale("log")
    axis.set_ylabel("squared Frobenius norm")
    return figure


def _bars(axis: Axes, values: Sequence[tuple[str, str, float, float]]) -> None:
    places = {name: place for place, name in enumerate(dict.fromkeys(v[0] for v in values))}
    for index, method in enumerate(METHODS):
        mine = [value for value in values if value[1] == method]
        if mine:
            drawn = axis.bar(
                [places[name] + (index - 0.5) * 0.38 for name, _, _, _ in mine],
                [value for _, _, value, _ in mine],
                0.36,
                yerr=[error for _, _, _, error in mine],
                color=hue(index),
                error_kw={"linewidth": 0.8},
                label=NAMES[method],
            )
            axis.bar_label(drawn, fmt="%.3g", fontsize=6)
    axis.set_xticks(list(places.values()), list(places))
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)


def _name(task: str, run: str, level: float) -> str:
    return f"{task}\nrun {run}, {level:g}"
