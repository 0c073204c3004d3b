"""Renders the page, an HTML file that makes no request, and writes its figures as files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from acpc_lab import plotting
from acpc_lab.extras import load
from acpc_lab.report.figures import Plate, distributions, levels, plane, steps
from acpc_lab.report.headline import headline
from acpc_lab.report.model import ReportData, printable
from acpc_lab.report.receipts import checks, common_receipt, protocol_rows, wanted
from acpc_lab.report.verdicts import grids, limit_table, standings, table
from acpc_lab.report.worst import FocusAnchor, focus
from acpc_lab.sweeps import CellResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ASSETS = Path(__file__).parent / "assets"
_MAX_COLUMNS, _MAX_KEYS = 4, 14
# How a legend on the page shows lines and markers.
_SIGNS = {
    "-": "\u2501", "--": "\u254d", ":": "\u22ef", "o": "\u25cf", "s": "\u25a0", "^": "\u25b2",
    "D": "\u25c6", "v": "\u25bc", "P": "\u271a", "X": "\u2716",
}  # fmt: skip


def plates(data: ReportData) -> list[Plate]:
    """Every figure that the data has values for, in the order of the page."""
    drawn = [
        *(levels(data, shift) for shift in data.shifts if data.has_levels),
        plane(data),
        *(distributions(data, shift) for shift in data.shifts),
        *(steps(data, shift) for shift in data.shifts),
    ]
    return [plate for plate in drawn if plate.panels]


def render(data: ReportData) -> str:
    """The report as HTML; the same data gives the same text.

    Raises FailedPrecondition: matplotlib or jinja2 is not installed.
    """
    jinja: Any = load("jinja2")
    markup: Any = load("markupsafe").Markup
    environment = jinja.Environment(
        autoescape=True,
        finalize=lambda x: printable(x) if isinstance(x, str) and not isinstance(x, markup) else x,
        loader=jinja.FileSystemLoader(_ASSETS),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
    )
    columns, rows = table(data)
    page: str = environment.get_template("report.html.j2").render(
        data=data,
        headline=headline(data),
        grids=grids(data),
        limits=limit_table(data),
        standings=standings(data),
        columns=columns,
        rows=rows,
        figures=_drawn(data),
        focus=[(it, [(a, _pictures(data, it.cell, a)) for a in it.anchors]) for it in focus(data)],
        wanted=wanted,
        checks=checks(data),
        protocol=protocol_rows(data),
        receipt=common_receipt(data),
        scored=[cell for cell in data.cells if cell.score is not None],
    )
    return page


class Drawn(NamedTuple):
    """The plates of one kind.

    Attributes:
        plate: The first; its title and caption stand for all.
        panels: Title and data URI.
        legend: Sign, colour and text of each entry.
    """

    plate: Plate
    panels: list[tuple[str, str]]
    legend: list[tuple[str, str, str]]


def _drawn(data: ReportData) -> list[Drawn]:
    kinds: dict[str, Drawn] = {}
    with plotting.styled():
        for plate in plates(data):
            drawn = kinds.setdefault(plate.key, Drawn(plate, [], []))
            for title, draw in plate.panels:
                figure = plotting.panel(draw, size=plate.size, rows=plate.rows)
                drawn.panels.append((title, plotting.data_uri(plotting.png(figure), "png")))
                for text, handle in _keys(figure).items():
                    if text not in [known for _, _, known in drawn.legend]:
                        drawn.legend.append((*_sign(handle), text))
    for drawn in kinds.values():
        rest = len(drawn.legend) - _MAX_KEYS
        if rest > 0:
            drawn.legend[_MAX_KEYS:] = [("", plotting.INK, f"and {rest} more")]
    return list(kinds.values())


def _keys(figure: Figure) -> dict[str, Any]:
    """What was drawn, by its label."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    return found


def _sign(handle: Any) -> tuple[str, str]:  # noqa: ANN401 - an artist
    if not hasattr(handle, "get_linestyle") or not hasattr(handle, "get_marker"):
        colours = load("matplotlib.colors")
        return _SIGNS["s"], colours.to_hex(handle.get_facecolor()[0])
    style, marker = handle.get_linestyle(), handle.get_marker()
    return _SIGNS.get(marker if style == "None" else style, _SIGNS["-"]), str(handle.get_color())


def _pictures(
    data: ReportData, cell: CellResult, anchor: FocusAnchor
) -> list[tuple[str, str, str]]:
    """Caption, alternative text and data URI of each picture of an anchor; none without them."""
    preview = data.previews.get((cell.operation, anchor.index))
    if preview is None:
        return []
    which = f"anchor {anchor.index}"
    shown = (
        ("clean", f"Clean frame of {which}", preview.clean),
        ("perturbed", f"The frame of {which} under {cell.shift}", preview.perturbed),
        ("different state", f"Frame of the nearest different state to {which}", preview.partner),
    )
    return [(name, text, plotting.frame_uri(x)) for name, text, x in shown if x is not None]


def export_figures(data: ReportData, folder: str | Path) -> list[Path]:
    """Writes every figure as SVG and PNG.

    Raises FailedPrecondition: matplotlib is not installed; OSError: The folder cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    taken: dict[str, int] = {}
    with plotting.styled():
        for plate in plates(data):
            title = f"{plate.key}-{plate.shift}" if plate.shift else plate.key
            name = re.sub(r"[^A-Za-z0-9.-]+", "-", title).strip("-.").lower()
            taken[name] = taken.get(name, 0) + 1
            name += f"-{taken[name]}" if taken[name] > 1 else ""
            written += plotting.write(_composed(plate), target, name)
    return written


def _composed(plate: Plate) -> Figure:
    """All panels of a plate in one figure, with the legend below."""
    columns = min(len(plate.panels), _MAX_COLUMNS)
    lines = -(-len(plate.panels) // columns)
    width, height = plate.size
    figure: Figure = load("matplotlib.figure").Figure(
        figsize=(columns * width, lines * height + 0.5), layout="constrained"
    )
    parts = figure.subfigures(lines, columns, squeeze=False).ravel()
    for part, (_, draw) in zip(parts, plate.panels, strict=False):
        draw(list(part.subplots(plate.rows, 1, sharex=True, squeeze=False)[:, 0]))
    keys = _keys(figure)
    if keys:
        shown = list(keys)[:_MAX_KEYS]
        across = max(1, int(columns * width / (0.6 + 0.06 * max(map(len, shown)))))
        handles = [keys[text] for text in shown]
        figure.legend(handles, shown, loc="outside lower center", ncols=across)
    return figure
