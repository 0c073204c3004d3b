"""Colours and style of all figures, and how they are written: in dark colours on white."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpc_lab.extras import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[[Sequence["Axes"]], None]

INK, SOFT, RULE, GROUND = "#1c2024", "#545c64", "#c9cdd1", "#ffffff"
PASS, FAIL, REGION = "#00609b", "#b04300", "#d3e6f3"
# Neighbours differ in hue and in lightness, for the common kinds of colour blindness too.
LEVELS = (
    "#884702", "#ef5f0a", "#5d0753", "#954ced", "#1d2eb5", "#0898b7", "#0b5111", "#979607",
)  # fmt: skip
KINDS = ("#0068a6", "#c24c00", "#00795a", "#a8498b", "#846600", "#4b5aa8", "#5d656d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "acpc",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 7.5,
    "figure.facecolor": GROUND,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelsize": 7.5,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "text.color": INK,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 7,
}
_DPI = 200


def hue(index: int) -> str:
    """Colour of the index-th kind."""
    return KINDS[index % len(KINDS)]


def spread(count: int) -> Sequence[str]:
    """Colours of ``count`` ordered levels, spread over the sequence of level colours."""
    last = len(LEVELS) - 1
    return [LEVELS[round(index * last / max(1, count - 1))] for index in range(count)]


@contextmanager
def styled() -> Iterator[None]:
    """The look of every figure, for drawing and for saving."""
    with load("matplotlib").rc_context(_STYLE):
        yield


def panel(draw: Draw, *, size: tuple[float, float], rows: int = 1) -> Figure:
    """A figure of ``rows`` axes over one x axis, drawn by ``draw``; call it in ``styled``."""
    engine = load("matplotlib.layout_engine").ConstrainedLayoutEngine
    layout = engine(w_pad=0.02, h_pad=0.03, hspace=0.02)
    figure: Figure = load("matplotlib.figure").Figure(figsize=size, layout=layout)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    draw(list(axes))
    return figure


def settle(figure: Figure) -> Figure:
    """Lays the figure out for good, at rounded places.

    The last bits of the layout differ from one drawing to the next, and ids of clips with them.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(edge, 5) for edge in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))
    return figure


def png(figure: Figure) -> bytes:
    """The figure as a PNG file, without dates."""
    content = io.BytesIO()
    settle(figure).savefig(content, format="png", dpi=_DPI, metadata={"Software": None})
    return content.getvalue()


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes the figure as SVG and PNG, without dates."""
    vector, raster = folder / f"{name}.svg", folder / f"{name}.png"
    raster.write_bytes(png(figure))
    figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    return [vector, raster]
