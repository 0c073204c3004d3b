"""Table horizon-quantile-sensitivity in the paper, as curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acpc_lab.plotting import hue, marker, panels
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.horizons import HorizonParameters, HorizonRows, HorizonSummary, IrReduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    evidence: Evidence[HorizonRows, HorizonParameters, HorizonSummary],
) -> Mapping[str, Figure]:
    """The figure of a horizon study."""
    held = evidence.summary
    return {"ratios": ratios(held.entries, held.horizon, held.quantile)}


def ratios(entries: Sequence[IrReduction], horizon: int, quantile: float) -> Figure:
    """Left: by horizon at one quantile. Right: by quantile at one horizon."""
    figure, (left, right) = panels(2, width=2.9, sharey=True)
    for index, task in enumerate(dict.fromkeys(entry.task for entry in entries)):
        mine = [entry for entry in entries if entry.task == task]
        look: dict[str, Any] = {"color": hue(index), "marker": marker(index), "markersize": 4}
        across = sorted((e.horizon, e.ratio) for e in mine if e.quantile == quantile)
        if across:
            left.plot(*zip(*across, strict=True), label=task, **look)
        along = sorted((e.quantile, e.ratio) for e in mine if e.horizon == horizon)
        if along:
            right.plot(*zip(*along, strict=True), **look)
    left.set_xlabel(f"horizon H, at q = {quantile:g}")
    left.set_ylabel("IR over the unaugmented one's")
    right.set_xlabel(f"quantile q, at H = {horizon}")
    left.set_xticks(sorted({entry.horizon for entry in entries}))
    right.set_xticks(sorted({entry.quantile for entry in entries}))
    left.set_ylim(bottom=0)
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, columnspacing=0.8)
    return figure
