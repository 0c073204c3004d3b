"""Tables of a study, for the terminal and drawn: a row per item, a panel per column of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from acpc.contract import cell

from acpc_lab.plotting import RULE, SOFT, hue, logarithmic, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CHARACTER, _ROW, _PANEL = 0.062, 0.22, 1.7  # inches
# Beyond this ratio of the largest to the smallest number, a linear axis hides the small ones.
_LOG_BEYOND = 30.0


@dataclass(frozen=True)
class Listing:
    """A table for the terminal, which may also be drawn.

    Attributes:
        items: One a row.
        columns: Title, attribute or function of the item, and format of a number.
        figure: Name of the figure that shows its numbers; empty: there is none.
        named: How many of the first columns name an item there.
        alike: Whether the others are numbers of one kind, which have one scale there.
        printed: Whether the terminal shows it; False: it is a figure alone.
    """

    items: Sequence[Any]
    columns: Sequence[tuple[Any, ...]]
    figure: str = ""
    named: int = 1
    alike: bool = False
    printed: bool = True


RUN = (("task", "task"), ("run", "run"))
CHECKPOINT = (*RUN, ("level", "level", "g"))
"""The columns that name a checkpoint."""
AGREEMENT = (
    ("BA", "balanced_accuracy", ".3f"),
    ("precision", "precision", ".3f"),
    ("recall", "recall", ".3f"),
)
"""The columns that say how decisions agree with behaviour."""


def family_column(items: Sequence[Any]) -> tuple[tuple[str, str], ...]:
    """The column of the model family, where an item names one."""
    return (("family", "family"),) * any(item.family for item in items)


def by_row(table: Listing) -> Figure:
    """A mark with its number for each item and column; no finite number leaves its row empty."""
    columns = [(title, _values(table.items, value), *spec) for title, value, *spec in table.columns]
    first = [[cell(x, *spec) for x in held] for _, held, *spec in columns[: table.named]]
    names = [", ".join(parts) for parts in zip(*first, strict=True)]
    shown = [(title, held) for title, held, *_ in columns[table.named :] if _are_numbers(held)]
    margin = _CHARACTER * max(map(len, names)) / len(shown)
    height = _ROW * len(names) + 0.9
    figure, axes = panels(len(shown), width=_PANEL + margin, height=height, sharey=True)
    known = [[x for x in held if x is not None] for _, held in shown]
    for axis, (title, held), own in zip(axes, shown, known, strict=True):
        points = [(x, row) for row, x in enumerate(held) if x is not None]
        _scale(axis, [x for held in known for x in held] if table.alike else own)
        axis.plot(*zip(*points, strict=True), "o", color=hue(0), markersize=4, zorder=3)
        place: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        for x, row in points:
            axis.annotate(f"{x:.3g}", (x, row), fontsize=5.5, color=SOFT, **place)
        axis.set_xlabel(title)
        axis.hlines(range(len(names)), *axis.get_xlim(), color=RULE, linewidth=0.5, zorder=0)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)  # the first stands at the top
    return figure


def _values(items: Sequence[Any], value: Any) -> list[Any]:  # noqa: ANN401 - as ``Listing`` has it
    found = map(attrgetter(value) if isinstance(value, str) else value, items)
    return [x if not isinstance(x, float) or math.isfinite(x) else None for x in found]


def _are_numbers(values: Sequence[object]) -> bool:
    known = [x for x in values if x is not None]
    return bool(known) and all(isinstance(x, int | float) and type(x) is not bool for x in known)


def _scale(axis: Axes, values: Sequence[float]) -> None:
    """Sets the limits of a panel, with room for the numbers."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _LOG_BEYOND:
        logarithmic(axis, "x", low / 1.5, high * 2.5)
        return
    low = low if low > high / 2 else min(0.0, low)
    reach = (high - low) or abs(high) or 1.0
    axis.set_xlim(low - 0.05 * reach, high + 0.2 * reach)
