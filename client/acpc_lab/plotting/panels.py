"""Draws rows of panels, and turns frames into data URIs."""

from __future__ import annotations

import base64
import io
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from acpc.arrays import NDArray

from acpc_lab.extras import load
from acpc_lab.plotting.canvas import GROUND, MARKERS, SOFT

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


Fill = Literal["full", "left", "none"]
"""How much of a mark is filled: all, its left half, nothing."""


def swatch(text: str, colour: str, fill: Fill = "full") -> Artist:
    """A legend entry for what a colour means; a marker there would seem to mean something."""
    if fill == "left":
        wide = load("matplotlib.transforms").Affine2D().scale(2.0, 0.7)
        half: Artist = load("matplotlib.lines").Line2D(
            [],
            [],
            linestyle="none",
            marker=load("matplotlib.markers").MarkerStyle("s", "left", wide),
            markersize=7,
            color=colour,
            markerfacecoloralt=GROUND,
            label=text,
        )
        return half
    patch: Artist = load("matplotlib.patches").Patch(
        facecolor="none" if fill == "none" else colour, edgecolor=colour, label=text
    )
    return patch


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
