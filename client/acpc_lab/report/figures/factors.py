"""Draws relative IR, SR and the certified fraction over the level of each factor of variation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from acpc_client import Interval

from acpc_lab.plotting import light
from acpc_lab.report.factors import Placed, placed
from acpc_lab.report.figures.levels import ir_relative, separation
from acpc_lab.report.figures.plate import Hues, Key, Panel, Plate, ends, mark, threshold
from acpc_lab.report.model import Measurement, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CAPTION = (
    "Relative IR (lower is better), SR {and_certified}(higher is better) over the level of each "
    "factor, a line for each checkpoint. Dotted: the thresholds."
)
Value = Callable[[Measurement], float | None]
Ends = Callable[[Measurement], Interval | None]
_ROWS: tuple[tuple[str, str, Value, Ends], ...] = (
    ("relative IR", "ir", ir_relative, lambda cell: cell.interval("ir_relative")),
    ("SR", "sr", separation, lambda cell: cell.interval("sr")),
    (
        "certified",
        "",
        lambda cell: None if cell.certified is None else cell.certified.rate,
        lambda cell: None if cell.certified is None else cell.certified.interval(),
    ),
)


def factors(data: ReportData) -> Plate:
    """One panel per factor: a line per checkpoint over its levels."""
    cells = [item for item in placed(data) if item.cell.score is not None]
    hues = Hues(data)
    certified = any(item.cell.certified is not None for item in cells)
    rows = _ROWS if certified else _ROWS[:2]
    names = dict.fromkeys(item.factor for item in cells)
    shown = [item.cell for item in cells]
    return Plate(
        key="factors",
        shift="",
        title="Factor by factor",
        caption=_CAPTION.format(and_certified="and certified fraction " * certified),
        panels=tuple(
            _panel([item for item in cells if item.factor == name], name, hues, rows)
            for name in names
        ),
        legend=(
            *(hues.legend(shown) if shown else ()),
            *(hues.marks(shown) if shown else ()),
            Key("threshold", "soft", "dots"),
        ),
        size=(2.5, 1.1 * len(rows) + 0.35),
        rows=len(rows),
    )


def _panel(
    cells: Sequence[Placed], factor: str, hues: Hues, rows: Sequence[tuple[str, str, Value, Ends]]
) -> Panel:
    limits = next(item.cell.score.verdict.thresholds for item in cells if item.cell.score)
    levels = sorted({item.level for item in cells})

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (label, limit, value, interval) in zip(axes, rows, strict=True):
            wanted = getattr(limits, limit) if limit else None
            if wanted is not None:
                threshold(axis, wanted)
            known = [found for item in cells if (found := value(item.cell)) is not None]
            highest = max([1.0, *known])
            axis.set_ylim(-0.06 * highest, 1.08 * highest)
            axis.set_ylabel(label)
            _lines(axis, cells, hues, value, interval)
        axes[0].set_title(factor)
        axes[-1].set_xlabel("level")
        axes[-1].set_xticks(levels, [f"{level:.2g}" for level in levels])
        axes[-1].margins(x=0.1)

    told = [
        f"{item.cell.name} at {item.level:.2g}: relative IR {_text(ir_relative(item.cell))}, "
        f"SR {_text(separation(item.cell))}"
        for item in cells
    ]
    return Panel(factor, draw, f"Relative IR and SR over the level of {factor}: {'; '.join(told)}.")


def _lines(axis: Axes, cells: Sequence[Placed], hues: Hues, value: Value, interval: Ends) -> None:
    names = dict.fromkeys(item.cell.name for item in cells)
    gap = 0.05 / max(1, len(names) - 1)
    for index, name in enumerate(names):
        mine = sorted((i for i in cells if i.cell.name == name), key=lambda item: item.level)
        known = [(item, found) for item in mine if (found := value(item.cell)) is not None]
        aside = gap * (index - (len(names) - 1) / 2)
        places = [(item.level + aside, found) for item, found in known]
        if places:
            colour = light(hues.role(known[0][0].cell))
            axis.plot(*zip(*places, strict=True), color=colour, linewidth=1.1, zorder=2)
        for (item, found), place in zip(known, places, strict=True):
            tip = f"{name}, {item.factor} {item.level:.2g}: {found:.3g}"
            mark(axis, place, item.cell, hues, tip, upwards=ends(interval(item.cell)))


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"
