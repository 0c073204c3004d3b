"""Defines a plate of panels, and the colours, markers and groups that all figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from acpc_client import Interval, Outcome

from acpc_lab.plotting import GROUND, INK, MARKERS, SOFT, Draw, Fill, hue, spread, whisker
from acpc_lab.report.model import Measurement, ReportData, dotted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_KEYS = 14
"""Entries of a legend; colours come round again long before."""
Ends = tuple[float, float]
Group = tuple[str, list[Measurement]]


@dataclass(frozen=True)
class Key:
    """One entry of a legend.

    Attributes:
        mark: ``line``, ``dashes``, ``dots``, ``bar``, ``region``, ``swatch`` for what a colour or
            a filling alone means, or a marker of the drawing library.
    """

    text: str
    colour: str = SOFT
    mark: str = "line"
    fill: Fill = "full"


class Panel(NamedTuple):
    """One drawing of a plate."""

    title: str
    draw: Draw


@dataclass(frozen=True)
class Plate:
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
    legend: tuple[Key, ...]
    size: tuple[float, float]
    rows: int = 1


class Hues:
    """The colour and the marker of every cell, the same in every figure.

    Levels, where there are any, make a sequence from weak to strong, with the unaugmented ones in
    ink; otherwise every checkpoint has a colour of its own. Markers tell tasks apart.
    """

    def __init__(self, data: ReportData) -> None:
        self._data = data
        raised = [level for level in data.levels if level > 0]
        self._levels = dict(zip(raised, spread(len(raised)), strict=True))
        others = dict.fromkeys(cell.name for cell in data.cells if not cell.is_reference)
        self._names = {name: hue(index) for index, name in enumerate(others)}

    def colour(self, cell: Measurement) -> str:
        """Colour of a cell."""
        if not self._data.has_levels:
            return self._names.get(cell.name, INK)
        return SOFT if cell.level is None else self._levels.get(cell.level, INK)

    def marker(self, task: str) -> str:
        """Marker of a task; where there are more than markers, all are dots."""
        tasks = self._data.tasks
        return MARKERS[tasks.index(task) if len(tasks) <= len(MARKERS) else 0]

    def legend(self, cells: Iterable[Measurement], *, mark: str = "line") -> tuple[Key, ...]:
        """An entry per level or checkpoint among ``cells``; levels of one colour share theirs."""
        keys: dict[str, Key] = {}
        by_level = self._data.has_levels
        order = sorted(cells, key=lambda c: (c.level is None, c.level or 0)) if by_level else cells
        for cell in order:
            text = cell.name + " (reference)" * cell.is_reference
            if by_level:
                text = self._level(cell)
            key = keys.setdefault(self.colour(cell) if by_level else text,
                                  Key(text, self.colour(cell), mark))  # fmt: skip
            if text not in key.text.split(", "):
                keys[key.colour] = replace(key, text=f"{key.text}, {text}")
        return ended(list(keys.values()))

    def _level(self, cell: Measurement) -> str:
        if cell.level is None:
            return "no level"
        if self._data.by_epoch:  # an early epoch has seen the same augmentation as the others
            return "reference" if cell.is_reference else f"{self._data.level_name} {cell.level:g}"
        return "unaugmented" if cell.is_reference else f"{cell.level:g}"

    def marks(self, cells: Sequence[Measurement]) -> tuple[Key, ...]:
        """Makes the legend of the shapes and fillings of the marks of ``cells``."""
        shapes = {self.marker(cell.task): cell.task for cell in cells}
        half = "half: undecided" + ", or a reference" * any(x.is_reference for x in cells)
        sure = f"{self._data.verdict_words} sure"
        return (
            *(Key(task, mark=shape) for shape, task in shapes.items() if len(shapes) > 1),
            Key(f"filled: passes, {sure}", mark="swatch"),
            Key(half, mark="swatch", fill="left"),
            Key(f"hollow: fails, {sure}", mark="swatch", fill="none"),
            Key(f"{self._data.interval_words} interval", mark="bar"),
        )


def ended(keys: list[Key]) -> tuple[Key, ...]:
    """The first entries of a legend, and how many more there are."""
    rest = len(keys) - MAX_KEYS
    return (*keys[:MAX_KEYS], *([Key(f"and {rest} more")] if rest > 0 else []))


def by_task(data: ReportData, shift: str, keep: Callable[[Measurement], object]) -> Iterator[Group]:
    """The scored cells of a shift that are to be kept, task by task, each below its heading."""
    for task in data.tasks:
        cells = [cell for cell in data.scored(shift, task) if keep(cell)]
        if cells:
            yield dotted(task * (len(data.tasks) > 1), shift * (len(data.shifts) > 1)), cells


def filling(cell: Measurement) -> Fill:
    """Fills the mark of a sure pass, half of an undecided cell, none of a failure.

    A reference, which cannot pass, is half full; without evidence the verdict decides.
    """
    if cell.is_reference:
        return "left"
    fills: dict[Outcome | None, Fill] = {Outcome.PASSED: "full", Outcome.UNDECIDED: "left"}
    return fills.get(cell.outcome if cell.sure is None else cell.sure, "none")


def ends(interval: Interval | None, *, beyond: float = 0.0) -> Ends | None:
    """Both ends of an interval, moved by ``beyond``; None without one."""
    return None if interval is None else (interval.lower + beyond, interval.upper + beyond)


def mark(
    axis: Axes,
    place: tuple[float, float],
    cell: Measurement,
    hues: Hues,
    *,
    across: Ends | None = None,
    upwards: Ends | None = None,
) -> None:
    """A point of a cell with its intervals; draw it when the axes have their limits."""
    colour = hues.colour(cell)
    whisker(axis, place, colour, across=across, upwards=upwards)
    fill = filling(cell)
    axis.plot(
        *place,
        linestyle="none",
        marker=hues.marker(cell.task),
        markersize=4.2,
        color=colour,
        fillstyle="full" if fill == "none" else fill,
        markerfacecolor=GROUND if fill == "none" else colour,
        markerfacecoloralt=GROUND,
        markeredgewidth=1.0,
        zorder=3,
    )


DOTTED: dict[str, Any] = {
    "color": SOFT, "linestyle": (0, (1.2, 2)), "linewidth": 1.0, "zorder": 1
}  # fmt: skip
"""How thresholds are drawn."""


def threshold(axis: Axes, value: float, *, upright: bool = False) -> None:
    """A threshold across the axes, with its value at the end."""
    text: dict[str, Any] = {"color": SOFT, "fontsize": 6.5, "zorder": 1}
    if upright:
        axis.axvline(value, **DOTTED)
        place = axis.get_xaxis_transform()
        axis.text(value, 1.0, f"{value:g}", ha="center", va="bottom", transform=place, **text)
    else:
        axis.axhline(value, **DOTTED)
        place = axis.get_yaxis_transform()
        axis.text(1.0, value, f" {value:g}", ha="left", va="center", transform=place, **text)
