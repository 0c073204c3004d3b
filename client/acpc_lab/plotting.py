"""What every figure of the lab shares: colours, one style, panels, and how they are written.

Figures are in dark colours on white. Nothing here imports matplotlib before something is drawn.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc.arrays import NDArray

from acpc_lab.extras import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[[Sequence["Axes"]], None]

INK, SOFT, RULE, GROUND = "#1c2024", "#545c64", "#c9cdd1", "#ffffff"
REGION = "#d3e6f3"
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
# Entries of a legend.
_KEYS = 12


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
    """A figure of ``rows`` axes over one x axis, drawn by ``draw``, with its legend below.

    Call it in ``styled``. ``size`` is that without the legend.
    """
    engine = load("matplotlib.layout_engine").ConstrainedLayoutEngine
    layout = engine(w_pad=0.02, h_pad=0.03, hspace=0.02)
    figure: Figure = load("matplotlib.figure").Figure(figsize=size, layout=layout)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    draw(list(axes))
    keys: dict[str, Any] = {}
    for axis in axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            keys.setdefault(text, handle)
    shown = list(keys)[:_KEYS]
    if shown:
        handles = [keys[text] for text in shown]
        more = f"and {len(keys) - len(shown)} more"
        across = max(1, int(size[0] / (0.4 + 0.062 * max(map(len, shown)))))
        lines = -(-len(shown) // across) + (len(keys) > len(shown))
        figure.set_size_inches(size[0], size[1] + 0.15 * lines)
        title = more if len(keys) > len(shown) else None
        figure.legend(handles, shown, loc="outside lower center", ncols=across, title=title)
    return figure


def settle(figure: Figure) -> Figure:
    """Lays the figure out for good, at rounded places.

    The last bits of the layout differ from one drawing to the next, and ids of clips with them.
    """
    for _ in range(2):  # ticks, and with them the room that they need, follow from the first
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


# Above this side, a noisy frame as PNG weighs more than 40 kB.
_MAX_LOSSLESS_SIDE = 96
_WEBP_QUALITY = 90
# Labels of a log axis: the coarsest of these multiples of the powers of ten that gives enough.
_MULTIPLES = ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10)))
_ENOUGH_TICKS, _MAX_TICKS = 3, 6


def panels(
    columns: int, *, width: float = 2.1, height: float = 2.2, rows: int = 1, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of panels of ``width`` x ``height`` inches; call it in ``styled``.

    Raises FailedPrecondition: matplotlib is not installed.
    """
    figure: Figure = load("matplotlib.figure").Figure(
        figsize=(max(width * columns, 3.0), height * rows), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    return figure, list(axes.reshape(-1))


def marker(index: int) -> str:
    """Marker of the index-th kind."""
    return MARKERS[index % len(MARKERS)]


def whisker(
    axis: Axes,
    place: tuple[float, float],
    colour: str,
    *,
    across: tuple[float, float] | None = None,
    upwards: tuple[float, float] | None = None,
) -> None:
    """Draws intervals through a place, as far as the axes reach; they must have their limits."""
    x, y = place
    style: dict[str, Any] = {"color": colour, "linewidth": 0.8, "alpha": 0.75, "zorder": 2.5}
    if across is not None:
        axis.plot(np.clip(across, *axis.get_xlim()), (y, y), solid_capstyle="butt", **style)
    if upwards is not None:
        axis.plot((x, x), np.clip(upwards, *axis.get_ylim()), solid_capstyle="butt", **style)


def logarithmic(axis: Axes, which: str, low: float, high: float) -> None:
    """A log axis from ``low`` to ``high``, both above 0, with two to six plain numbers on it.

    ``which`` is ``x`` or ``y``.
    """
    ticks: list[float] = []
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for multiples in _MULTIPLES:
        if len(ticks) < _ENOUGH_TICKS:
            steps = (m * 10.0**d for d in decades for m in multiples)
            ticks = [tick for tick in steps if low <= tick <= high]
    if len(ticks) < _ENOUGH_TICKS:  # Less than a multiple: as on a linear axis.
        locator = load("matplotlib.ticker").MaxNLocator(_MAX_TICKS, min_n_ticks=_ENOUGH_TICKS)
        ticks = [tick for tick in locator.tick_values(low, high).tolist() if low <= tick <= high]
    ticks = ticks[:: -(-len(ticks) // _MAX_TICKS)]
    axis.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    getattr(axis, f"set_{which}ticks")(ticks, [f"{tick:.10g}" for tick in ticks])
    axis.minorticks_off()


def zero_line(axis: Axes, height: float = 0.0) -> None:
    """Draws a dotted line across the panel."""
    axis.axhline(height, color=SOFT, linewidth=0.8, linestyle=":", zorder=0)


def data_uri(content: bytes, kind: str) -> str:
    """An image file, ``png`` or ``webp``, as an address of what it holds."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def frame_uri(history: NDArray[np.uint8]) -> str:
    """The last frame of uint8 (h, height, width, 3) as a data URI: PNG, or WebP when large."""
    frame = np.ascontiguousarray(history[-1])
    kind = "png" if max(frame.shape[:2]) <= _MAX_LOSSLESS_SIDE else "webp"
    options = {"optimize": True} if kind == "png" else {"quality": _WEBP_QUALITY, "method": 4}
    buffer = io.BytesIO()
    load("PIL.Image").fromarray(frame).save(buffer, format=kind, **options)
    return data_uri(buffer.getvalue(), kind)
