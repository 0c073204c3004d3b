"""Defines a plate of panels, and the colours, markers and groups that all figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from acpc_client import Interval, Outcome

from acpc_lab.plotting import KINDS, MARKERS, TIP, Draw, Fill, light, spread, whisker
from acpc_lab.report.model import Measurement, ReportData, dotted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY_TASKS = 3
"""From so many tasks on, each shift has a row of panels and a heading of its own."""
MAX_KEYS = 14
"""Entries of a legend; colours come round again long before, and marks tell their names."""
MAX_WORDS = 12
"""Curves whose numbers a description names."""
Ends = tuple[float, float]


@dataclass(frozen=True)
class Key:
    """One entry of a legend.

    Attributes:
        mark: ``line``, ``dashes``, ``dots``, ``bar``, ``region``, ``swatch`` for what a colour or
            a filling alone means, or a marker of the drawing library.
    """

    text: str
    role: str
    mark: str = "line"
    fill: Fill = "full"


@dataclass(frozen=True)
class Panel:
    """One drawing of a plate; ``description`` says in words what it shows."""

    title: str
    draw: Draw
    description: str


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


def abreast(count: int, most: int) -> int:
    """Chooses how many of ``count`` panels share a row, at most ``most``, so that none is alone.

    Where every number leaves one alone, ``most``.
    """
    fits = range(min(count, most), 1, -1)
    return next((columns for columns in fits if count % columns != 1), min(count, most) or 1)


class Hues:
    """The colour and the marker of every cell, the same in every figure.

    Levels, where there are any, make a sequence from weak to strong, with the unaugmented ones in
    ink; otherwise every checkpoint has a colour of its own. Markers tell training runs apart or,
    with ``tasks``, tasks where there are several; where there are more than markers, they are dots.
    """

    def __init__(self, data: ReportData, *, tasks: bool = False) -> None:
        self._by_level = data.has_levels
        # An early epoch may be a reference, and has seen the same augmentation as the others.
        self._reference = "reference" if data.by_epoch else "unaugmented"
        self._moment = f"{data.level_name} " if data.by_epoch else ""
        raised = [level for level in data.levels if level > 0]
        self._levels = dict(zip(raised, spread(len(raised)) if raised else (), strict=True))
        others = dict.fromkeys(cell.name for cell in data.cells if not cell.is_reference)
        self._names = {name: KINDS[index % len(KINDS)] for index, name in enumerate(others)}
        unlevelled = {cell.name for cell in data.cells if cell.level is None}
        self._unlevelled = unlevelled.pop() if len(unlevelled) == 1 else "no level"
        self._tasks = tasks and len(data.tasks) > 1
        self._sure, self._interval = data.verdict_words, data.interval_words
        marked = dict.fromkeys(map(self._marked, data.cells))
        shapes = MARKERS if len(marked) <= len(MARKERS) else MARKERS[:1] * len(marked)
        self._marks = dict(zip(marked, shapes, strict=False))

    def _marked(self, cell: Measurement) -> str:
        return cell.task if self._tasks else f"run {cell.run}"

    def role(self, cell: Measurement) -> str:
        """Colour of a cell."""
        if not self._by_level:
            return self._names.get(cell.name, "ink")
        if cell.level is None:
            return "kind6"
        return self._levels.get(cell.level, "ink")

    def marker(self, cell: Measurement) -> str:
        """Marker of a cell's training run or task."""
        return self._marks[self._marked(cell)]

    def legend(self, cells: Iterable[Measurement], *, mark: str = "line") -> tuple[Key, ...]:
        """An entry per level or checkpoint among ``cells``; levels of one colour share theirs."""
        seen: dict[str, tuple[float, Key]] = {}
        for position, cell in enumerate(cells):
            order, text = float(position), cell.name + " (reference)" * cell.is_reference
            if self._by_level and cell.level is None:
                order, text = float("inf"), self._unlevelled
            elif self._by_level and cell.level is not None:
                order = cell.level
                text = self._reference if cell.is_reference else f"{self._moment}{cell.level:g}"
            seen.setdefault(text, (order, Key(text, self.role(cell), mark)))
        shared: dict[str, list[Key]] = {}
        for _, key in sorted(seen.values(), key=lambda entry: entry[0]):
            shared.setdefault(key.role if self._by_level else key.text, []).append(key)
        keys = [_together(found) for found in shared.values()]
        rest = len(keys) - MAX_KEYS
        if rest > 0:
            keys[MAX_KEYS:] = [Key(f"and {rest} more", "soft", mark)]
        return tuple(keys)

    def marks(self, cells: Sequence[Measurement]) -> tuple[Key, ...]:
        """Makes the legend of the shapes and fillings of the marks of ``cells``."""
        shown = dict.fromkeys(map(self._marked, cells))
        differ = len({self._marks[name] for name in shown}) > 1
        half = "half: undecided" + ", or a reference" * any(x.is_reference for x in cells)
        return (
            *(Key(name, "soft", self._marks[name]) for name in shown if differ),
            Key(f"filled: passes, {self._sure} sure", "soft", "swatch"),
            Key(half, "soft", "swatch", "left"),
            Key(f"hollow: fails, {self._sure} sure", "soft", "swatch", "none"),
            Key(f"{self._interval} interval", "soft", "bar"),
        )


def _together(keys: Sequence[Key]) -> Key:
    """One entry for all of a colour."""
    texts = [key.text for key in keys]
    many = len(texts) > 2
    return replace(keys[0], text=f"{texts[0]} to {texts[-1]}" if many else ", ".join(texts))


@dataclass(frozen=True)
class OfTask:
    """The cells of a panel: those of a task under a shift, with the words that tell it apart.

    Attributes:
        heading: What tells it from the others that stand below the same heading.
        where: Task and shift, in a sentence.
    """

    heading: str
    where: str
    cells: list[Measurement]


def by_task(
    data: ReportData, shift: str, keep: Callable[[Measurement], object]
) -> Iterator[OfTask]:
    """The scored cells of a shift that are to be kept, task by task."""
    tasks = len(data.tasks)
    named = len(data.shifts) > 1 and tasks < MANY_TASKS
    for task in data.tasks:
        cells = [cell for cell in data.scored(shift, task) if keep(cell)]
        if cells:
            heading = dotted(task if tasks > 1 else "", shift if named else "")
            yield OfTask(heading, f"{task} under {shift}" if task else shift, cells)


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
    tip: str,
    *,
    across: Ends | None = None,
    upwards: Ends | None = None,
) -> None:
    """A point of a cell with its intervals; draw it when the axes have their limits."""
    colour = light(hues.role(cell))
    whisker(axis, place, colour, across=across, upwards=upwards)
    fill = filling(cell)
    axis.plot(
        *place,
        linestyle="none",
        marker=hues.marker(cell),
        markersize=4.2,
        color=colour,
        fillstyle="full" if fill == "none" else fill,
        markerfacecolor=light("ground") if fill == "none" else colour,
        markerfacecoloralt=light("ground"),
        markeredgewidth=1.0,
        zorder=3,
        gid=TIP + tip,
    )


DOTTED: dict[str, Any] = {
    "color": light("soft"), "linestyle": (0, (1.2, 2)), "linewidth": 1.0, "zorder": 1
}  # fmt: skip
"""How thresholds are drawn."""


def threshold(axis: Axes, value: float, *, upright: bool = False) -> None:
    """A threshold across the axes, with its value at the end."""
    text: dict[str, Any] = {"color": light("soft"), "fontsize": 6.5, "zorder": 1}
    if upright:
        axis.axvline(value, **DOTTED)
        place = axis.get_xaxis_transform()
        axis.text(value, 1.0, f"{value:g}", ha="center", va="bottom", transform=place, **text)
    else:
        axis.axhline(value, **DOTTED)
        place = axis.get_yaxis_transform()
        axis.text(1.0, value, f" {value:g}", ha="left", va="center", transform=place, **text)
