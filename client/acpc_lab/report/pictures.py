"""Draws one answer, for a notebook and for ``plot()`` of the answers."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpc_client import (
    PairComparison,
    PoolCertificate,
    Score,
    SeverityLimit,
    StudyResult,
    WorstAnchors,
)
from acpc_client.errors import ArgumentError

from acpc_lab import plotting
from acpc_lab.extras import load
from acpc_lab.report.figures import draw_limits
from acpc_lab.report.model import ReportData
from acpc_lab.report.page import composed, plates
from acpc_lab.report.sources import from_scores, from_sweep
from acpc_lab.sweeps import SweepResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIDE = 1.5
_TITLES = ("clean", "perturbed", "partner, in another state")
_SIZE = (4.4, 2.6)
_DPI = 150
# What a score and a sweep show: the first of these figures that they have values for.
_OF_SCORE = ("distributions", "steps", "plane")
_OF_SWEEP = ("levels", "plane")


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure that a notebook shows.

    Attributes:
        figure: matplotlib's.
    """

    figure: Figure

    def save(self, path: str | Path) -> None:
        """Writes it in the format that the suffix names, for example .png or .svg."""
        self._save(path)

    def png(self) -> bytes:
        """The content of its PNG file."""
        content = io.BytesIO()
        self._save(content, format="png")
        return content.getvalue()

    _repr_png_ = png

    def _save(self, to: Any, **options: Any) -> None:  # noqa: ANN401 - a path or a file
        with plotting.styled():
            self.figure.savefig(to, facecolor="white", dpi=_DPI, **options)


def picture(answer: Any) -> Picture:  # noqa: ANN401 - any answer
    """The picture of a score, certificate, comparison of a pair, limit, sweep, or worst anchors.

    Raises ArgumentError: There is nothing to draw; FailedPrecondition: matplotlib is not installed.
    """
    with plotting.styled():
        match answer:
            case Score():
                return Picture(_of_report(from_scores([answer]), _OF_SCORE))
            case SweepResults():
                return Picture(_of_report(from_sweep(answer), _OF_SWEEP))
            case WorstAnchors():
                return Picture(_frames(answer))
            case PoolCertificate():
                return _one_axis(_margins, answer)
            case SeverityLimit():
                return _one_axis(_limit, answer)
            case PairComparison():
                return _one_axis(_steps, answer)
    found = type(answer).__name__
    instead = (
        "acpc study draws the figures of a study"
        if isinstance(answer, StudyResult)
        else "wanted a score, sweep, certificate, comparison of a pair, limit or worst anchors"
    )
    raise ArgumentError("answer", f"found {found}, which has no picture; {instead}")


def _of_report(data: ReportData, keys: Sequence[str]) -> Figure:
    drawn = {plate.key: plate for plate in reversed(plates(data))}
    for key in keys:
        if key in drawn:
            return composed(drawn[key])
    raise ArgumentError("answer", "has nothing to draw: neither values per anchor nor relative IR")


def _one_axis(draw: Callable[[Axes, Any], None], answer: object) -> Picture:
    return Picture(plotting.panel(lambda axes: draw(axes[0], answer), size=_SIZE))


def _frames(answer: WorstAnchors) -> Figure:
    """A row per anchor: the last frame of its history, clean, perturbed, and its partner's."""
    if not answer.anchors:
        raise ArgumentError("answer", "has nothing to draw: no anchors")
    rows = len(answer.anchors)
    size = (_SIDE * len(_TITLES) + 1, _SIDE * rows + 0.4)
    figure: Figure = load("matplotlib.figure").Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, len(_TITLES), squeeze=False)
    for row, anchor in zip(axes, answer.anchors, strict=True):
        for axis, images in zip(row, (anchor.clean, anchor.perturbed, anchor.partner), strict=True):
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            if images is not None:
                axis.imshow(images[-1], interpolation="nearest")
        apart = "" if anchor.distance is None else f"\nD {anchor.distance:.3g}"
        row[0].set_ylabel(f"anchor {anchor.anchor}\nR {anchor.radius:.3g}{apart}")
    for axis, title in zip(axes[0], _TITLES, strict=True):
        axis.set_title(title)
    figure.suptitle(answer.headline(), fontsize=8.5)
    return figure


def _limit(axis: Axes, answer: SeverityLimit) -> None:
    """S at each severity that was scored, and the limit's interval as a band."""
    draw_limits("\n".join(textwrap.wrap(answer.headline(), 60)), [answer], [axis])
    upper = answer.points[-1].severity if answer.breaks is None else answer.breaks
    axis.axvspan(answer.holds, upper, color=plotting.SOFT, alpha=0.2, linewidth=0)


def _margins(axis: Axes, answer: PoolCertificate) -> None:
    """The margins of winner and elite set under each view, certified above zero."""
    elites = any(view.elite is not None for view in answer.views)
    for view, certificate in enumerate(answer.views):
        colour = plotting.hue(certificate.spec_index)
        for held, marker in ((certificate.top1, "o"), (certificate.elite, "s")):
            if held is not None:
                fill = colour if held.certified else "none"
                axis.plot(view, held.margin, marker, color=colour, markerfacecolor=fill)
    plotting.zero_line(axis)
    axis.set_title(answer.headline())
    axis.locator_params(axis="x", integer=True)
    key = "; circle: winner, square: elites" * elites
    axis.set(xlabel=f"view; filled where certified{key}", ylabel="margin")


def _steps(axis: Axes, answer: PairComparison) -> None:
    """Draws how far predictions are apart after each step, a line per view."""
    for result in answer.results:
        steps = range(1, len(result.step_distances) + 1)
        axis.plot(steps, result.step_distances, "-", color=plotting.hue(result.spec_index))
    axis.set_ylim(bottom=0)
    axis.locator_params(axis="x", integer=True)
    axis.set(xlabel="predicted step", ylabel="distance of the predictions")
