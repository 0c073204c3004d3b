"""Table sigreg-collapse-control in the paper, as bars side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from acpc_lab.plotting import light, panels
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.collapse import (
    CollapseLine,
    CollapseParameters,
    CollapseRows,
    CollapseSummary,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (
    ("ir_raw", "raw IR"),
    ("sr", "SR"),
    ("median_latent_distance", "median latent distance"),
    ("success_clean", "clean success (%)"),
)


def draw(
    evidence: Evidence[CollapseRows, CollapseParameters, CollapseSummary],
) -> Mapping[str, Figure]:
    """The figure of a collapse control."""
    return {"checkpoints": checkpoints(evidence.summary.checkpoints)}


def checkpoints(lines: Sequence[CollapseLine]) -> Figure:
    """A bar per checkpoint in each panel; collapsed ones in the colour of failure."""
    shown = [
        panel for panel in PANELS if all(getattr(line, panel[0]) is not None for line in lines)
    ]
    figure, axes = panels(len(shown), width=1.8, height=2.1)
    colours = [light("fail") if line.collapsed else light("pass") for line in lines]
    for axis, (field, title) in zip(axes, shown, strict=True):
        values = [getattr(line, field) for line in lines]
        drawn = axis.bar(range(len(lines)), values, color=colours)
        axis.bar_label(drawn, fmt="%.3g", fontsize=6)
        axis.set_xticks(range(len(lines)), [line.checkpoint for line in lines])
        axis.set_title(title)
    for name, colour in (("collapsed", "fail"), ("not collapsed", "pass")):
        axes[0].plot([], [], "s", color=light(colour), label=name)
    figure.legend(loc="outside upper right", ncols=2)
    return figure
