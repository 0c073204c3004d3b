"""Styles figures, and writes them as SVG for a page or as SVG and PNG files."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpc_lab.extras import load
from acpc_lab.plotting.palette import COLOURS, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[[Sequence["Axes"]], None]

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "acpc",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 7.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
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
TIP = "tip "
"""An artist whose gid starts so carries the rest as a tooltip on the page."""

_ROLES = {value: role for role, (value, _) in COLOURS.items()}
_NO_DATES = {"Date": None, "Creator": None}
# Of what matplotlib writes as SVG, in which <, > and quotes are escaped wherever they are data.
_DROPPED = re.compile(r"<(metadata|style)\b.*?</\1>|<!--.*?-->|(?<=>)\s+(?=<)", re.DOTALL)
_TIP_GROUP = re.compile(rf'<g id="{TIP}([^"]*)">')
_GROUP = re.compile(r'<g id="[^"]*">')
_REFERENCE = re.compile(r'\b(?:xlink:)?(id="|href="#|clip-path="url\(#)')
_STYLE_OF = re.compile(r'\bstyle="([^"]*)"')
_PLACES = re.compile(r'\b(?:d|x|y|width|height|transform)="[^"]*"')
_NUMBER = re.compile(r"-?\d+\.\d+")


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


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes the figure as SVG and PNG, in light colours on white, without dates."""
    settle(figure)
    vector, raster = folder / f"{name}.svg", folder / f"{name}.png"
    figure.savefig(vector, format="svg", metadata=_NO_DATES, facecolor="white")
    figure.savefig(raster, format="png", dpi=200, metadata={"Software": None}, facecolor="white")
    return [vector, raster]


def inline(figure: Figure, key: str, description: str) -> str:
    """The figure as SVG for the page: colours by class, ids of its own, a description."""
    buffer = io.BytesIO()
    settle(figure).savefig(buffer, format="svg", metadata=_NO_DATES)
    root, _, body = buffer.getvalue().decode().partition("<svg")[2].partition(">")
    box = re.search(r'viewBox="[^"]*"', root)
    body = _TIP_GROUP.sub(r"<g><title>\1</title>", _DROPPED.sub("", body))
    body = _REFERENCE.sub(rf"\g<1>{key}-", _GROUP.sub("<g>", body))
    body = _PLACES.sub(_short, _STYLE_OF.sub(_themed, body))
    words = html.escape(description)
    view = f'{box[0] if box else ""} role="img" class="figure" aria-label="{words}"'
    return f"<svg {view}><title>{words}</title>{body.strip()}"


def _themed(style: re.Match[str]) -> str:
    """Attributes instead of a style, which the page's policy forbids; colours are classes."""
    pairs = [declaration.split(":", 1) for declaration in style[1].split(";") if declaration]
    found = {name.strip(): value.strip() for name, value in pairs}
    roles = {name: _ROLES.get(found.get(name, "")) for name in ("fill", "stroke")}
    classes = " ".join(f"{name[0]}-{role}" for name, role in roles.items() if role)
    kept = {name: x for name, x in found.items() if not roles.get(name) and name != "font-family"}
    attributes = kept | ({"class": classes} if classes else {})
    return " ".join(f'{name}="{value}"' for name, value in attributes.items())


def _short(attribute: re.Match[str]) -> str:
    """Numbers of two decimals, in a line."""
    text = " ".join(attribute[0].split())
    return _NUMBER.sub(lambda number: f"{round(float(number[0]), 2) + 0:g}", text)
