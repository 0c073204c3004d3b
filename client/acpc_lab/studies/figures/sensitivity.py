"""Fig. local-gaussian-sensitivity in the paper: ratio to the unaugmented checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from acpc_lab.plotting import hue, marker, panels, zero_line
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.sensitivity import (
    METHODS,
    Sensitivity,
    SensitivityParameters,
    SensitivityRatio,
    SensitivityRows,
    SensitivitySummary,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"jvp": "Jacobian-vector products", "finite_difference": "finite differences"}
OFFSETS = {"jvp": -0.19, "finite_difference": 0.19}


def draw(
    evidence: Evidence[SensitivityRows, SensitivityParameters, SensitivitySummary],
) -> Mapping[str, Figure]:
    """The figures of a sensitivity study."""
    held = evidence.summary
    drawn = {"checkpoints": checkpoints(held.checkpoints)}
    return drawn | ({"ratios": ratios(held.ratios)} if held.ratios else {})


def ratios(held: Sequence[SensitivityRatio]) -> Figure:
    """Bars of the ratio by checkpoint and method, with a standard error; below one is lower."""
    places = {name: place for place, name in enumerate(dict.fromkeys(map(_name, held)))}
    figure, (axis,) = panels(1, width=max(4.2, 0.6 * len(places)), height=2.6)
    for index, method in enumerate(METHODS):
        mine = [item for item in held if item.method == method]
        drawn = axis.bar(
            [places[_name(item)] + OFFSETS[method] for item in mine],
            [item.ratio for item in mine],
            0.36,
            yerr=[item.standard_error for item in mine],
            color=hue(index),
            error_kw={"linewidth": 0.8},
            label=NAMES[method],
        )
        axis.bar_label(drawn, fmt="%.2g", fontsize=6)
    zero_line(axis, 1.0)
    axis.set_xticks(list(places.values()), list(places))
    axis.set_xlim(-0.75, len(places) - 0.25)
    axis.set_ylabel("sensitivity over the\nunaugmented checkpoint's")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def checkpoints(held: Sequence[Sensitivity]) -> Figure:
    """The squared Frobenius norm of every checkpoint, with a standard error, on a log scale."""
    places = {name: place for place, name in enumerate(dict.fromkeys(map(_name, held)))}
    figure, (axis,) = panels(1, width=max(4.2, 0.6 * len(places)), height=2.6)
    for index, method in enumerate(METHODS):
        mine = [item for item in held if item.method == method]
        axis.errorbar(
            [places[_name(item)] + 0.4 * OFFSETS[method] for item in mine],
            [item.mean for item in mine],
            [item.standard_error for item in mine],
            color=hue(index),
            marker=marker(index),
            linewidth=0,
            elinewidth=0.8,
            label=NAMES[method],
        )
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")
    axis.set_xticks(list(places.values()), list(places))
    axis.set_xlim(-0.5, len(places) - 0.5)
    axis.set_ylabel("squared Frobenius norm")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _name(item: Sensitivity | SensitivityRatio) -> str:
    return f"{item.task}\nrun {item.run}, {item.level:g}"
