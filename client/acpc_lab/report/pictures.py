"""Draws what no report shows, for a notebook and for ``plot()``: a certificate, a pair, a limit."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpc_client import PairComparison, PoolCertificate, SeverityLimit
from acpc_client.errors import ArgumentError

from acpc_lab import plotting
from acpc_lab.report.figures import draw_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (4.4, 2.6)
_DPI = 150


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure that a notebook shows.

    Attributes:
        figure: matplotlib's.
    """

    figure: Figure

    def save(self, to: str | Path | io.BytesIO, **options: Any) -> None:  # noqa: ANN401
        """Writes it in the format that the suffix names, for example .png or .svg.

        ``options`` are those of matplotlib's ``savefig``.
        """
        with plotting.styled():
            self.figure.savefig(to, facecolor="white", dpi=_DPI, **options)

    def png(self) -> bytes:
        """The content of its PNG file."""
        content = io.BytesIO()
        self.save(content, format="png")
        return content.getvalue()

    _repr_png_ = png


def picture(answer: Any) -> Picture:  # noqa: ANN401 - any answer
    """The picture of a certificate, comparison of a pair, or limit.

    Raises ArgumentError: There is nothing to draw; FailedPrecondition: matplotlib is not installed.
    """
    drawn: dict[type, Callable[[Axes, Any], None]] = {
        PoolCertificate: _margins, SeverityLimit: _limit, PairComparison: _steps
    }  # fmt: skip
    draw = drawn.get(type(answer))
    if draw is None:
        found = f"found {type(answer).__name__}, which has no picture"
        instead = "acpc report draws scores and sweeps, acpc study the figures of a study"
        wanted = "wanted a certificate, comparison of a pair or limit"
        raise ArgumentError("answer", f"{found}; {instead}; {wanted}")
    with plotting.styled():
        return Picture(plotting.panel(lambda axes: draw(axes[0], answer), size=_SIZE))


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
