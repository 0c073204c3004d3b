"""Defines a plate of panels, and the colours, marks and groups that all figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from acpc_client import Interval, Outcome

from acpc_lab.plotting import GROUND, INK, SOFT, Draw, hue, spread, whisker
from acpc_lab.report.model import ReportData, dotted
from acpc_lab.sweeps import CellResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Ends = tuple[float, float]
DOTTED: dict[str, Any] = {"color": SOFT, "linestyle": (0, (1.2, 2)), "linewidth": 1.0, "zorder": 1}


class Panel(NamedTuple):
    """One drawing of a plate."""

    title: str
    draw: Draw


class Plate(NamedTuple):
    """A figure: panels of one kind, side by side.

    Attributes:
        key: Kind of the figure; with the shift, its file name.
        shift: The shift it is about; empty: all of them.
        size: Width and height of a panel in inches.
        rows: Axes in a panel, over one x axis.
    """

    key: str
    shift: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    size: tuple[float, float]
    rows: int = 1


class Hues:
    """The colour and the name of every cell in a legend, the same in every figure.

    Levels, where there are any, make a sequence from weak to strong, with the unaugmented ones in
    ink; otherwise every checkpoint has a colour of its own.
    """

    def __init__(self, data: ReportData) -> None:
        self._data = data
        raised = [level for level in data.levels if level > 0]
        self._levels = dict(zip(raised, spread(len(raised)), strict=True))
        others = dict.fromkeys(cell.name for cell in data.cells if not cell.is_reference)
        self._names = {name: hue(index) for index, name in enumerate(others)}

    def colour(self, cell: CellResult) -> str:
        """Colour of a cell."""
        if not self._data.has_levels:
            return self._names.get(cell.name, INK)
        return SOFT if cell.level is None else self._levels.get(cell.level, INK)

    def label(self, cell: CellResult) -> str:
        """Text of a cell in a legend: its level, or its checkpoint."""
        if not self._data.has_levels:
            return cell.name + " (reference)" * cell.is_reference
        if cell.level is None:
            return "no level"
        if self._data.level_name in ("epoch", "step"):  # early epochs have the same augmentation
            named = f"{self._data.level_name} {cell.level:g}"
            return "reference" if cell.is_reference else named
        return "unaugmented" if cell.is_reference else f"{cell.level:g}"

    def mark(
        self,
        axis: Axes,
        place: tuple[float, float],
        cell: CellResult,
        across: Ends | None = None,
        upwards: Ends | None = None,
        **style: Any,  # noqa: ANN401 - of a line
    ) -> None:
        """Draws a cell with its intervals; call it when the axes have their limits.

        A sure pass is filled, an undecided cell or a reference half, a failure hollow.
        """
        colour = self.colour(cell)
        whisker(axis, place, colour, across=across, upwards=upwards)
        outcome = cell.outcome if cell.sure is None else cell.sure
        half = cell.is_reference or outcome is Outcome.UNDECIDED
        hollow = not half and outcome is not Outcome.PASSED
        axis.plot(
            *place,
            **{"marker": "o", **style},
            linestyle="none",
            markersize=4.2,
            color=colour,
            fillstyle="left" if half else "full",
            markerfacecolor=GROUND if hollow else colour,
            markerfacecoloralt=GROUND,
            markeredgewidth=1.0,
            zorder=3,
        )


def marks(data: ReportData) -> str:
    """The sentence of a caption that says what the marks mean."""
    return (
        f" Filled marks pass and hollow ones fail, each {data.verdict_words} sure; half-filled "
        f"ones are undecided, or references. Bars are {data.interval_words} intervals."
    )


def ends(interval: Interval | None, beyond: float = 0.0) -> Ends | None:
    """Both ends of an interval, moved by ``beyond``; None without one."""
    return None if interval is None else (interval.lower + beyond, interval.upper + beyond)


def by_task(
    data: ReportData, shift: str, keep: Callable[[CellResult], object]
) -> Iterator[tuple[str, list[CellResult]]]:
    """The scored cells of a shift that are to be kept, task by task, each below its heading."""
    for task in data.tasks:
        scored = [c for c in data.cells if (c.shift, c.task) == (shift, task) and c.score]
        cells = [cell for cell in scored if keep(cell)]
        if cells:
            yield dotted(task * (len(data.tasks) > 1), shift * (len(data.shifts) > 1)), cells


def threshold(axis: Axes, value: float, *, upright: bool = False) -> None:
    """A threshold across the axes, with its value at the end."""
    text: dict[str, Any] = {"color": SOFT, "fontsize": 6.5, "zorder": 1}
    if upright:
        axis.axvline(value, **DOTTED)
        place = axis.get_xaxis_transform()
        axis.text(value, 1.0, f"{value:g}", ha="center", va="bottom", transform=place, **text)
    else:
        axis.axhline(value, **DOTTED, label="threshold")
        place = axis.get_yaxis_transform()
        axis.text(1.0, value, f" {value:g}", ha="left", va="center", transform=place, **text)
