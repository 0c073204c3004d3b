"""Renders the page: one HTML file that makes no network request."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from acpc_lab import plotting
from acpc_lab.extras import load
from acpc_lab.report.figures import Key, Plate, plates
from acpc_lab.report.headline import headline, tallies
from acpc_lab.report.limits import limit_table
from acpc_lab.report.measures import checks, common_receipt, protocol_rows
from acpc_lab.report.model import Measurement, ReportData
from acpc_lab.report.tables import grids, standings, table
from acpc_lab.report.worst import FocusAnchor, focus

_ASSETS = Path(__file__).parent / "assets"
# The marks of a legend, as the figures draw them.
_SIGNS = {
    "line": "\u2501", "dashes": "\u254d", "dots": "\u22ef", "bar": "|", "region": "\u25a0",
    "o": "\u25cf", "s": "\u25a0", "^": "\u25b2", "D": "\u25c6", "v": "\u25bc", "P": "\u271a",
    "X": "\u2716",
}  # fmt: skip
_SWATCHES = {"full": "\u25ac", "left": "\u25e7", "none": "\u25ad"}


def render(data: ReportData) -> str:
    """The report as HTML; the same data gives the same text.

    Raises FailedPrecondition: matplotlib or jinja2 is not installed.
    """
    jinja: Any = load("jinja2")
    environment = jinja.Environment(
        autoescape=True,
        loader=jinja.FileSystemLoader(_ASSETS),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
    )
    columns, rows = table(data)
    page: str = environment.get_template("report.html.j2").render(
        data=data,
        headline=headline(data),
        tallies=tallies(data),
        grids=grids(data),
        limits=limit_table(data),
        standings=standings(data),
        columns=columns,
        rows=rows,
        figures=_drawn(data),
        focus=[(it, [(a, _pictures(data, it.cell, a)) for a in it.anchors]) for it in focus(data)],
        checks=checks(data),
        protocol=protocol_rows(data),
        receipt=common_receipt(data),
        scored=[cell for cell in data.cells if cell.score is not None],
    )
    return page


class Drawn(NamedTuple):
    """The plates of one kind.

    Attributes:
        plate: The first; its title, caption and legend stand for all.
        panels: Title and data URI.
        legend: Sign and entry.
    """

    plate: Plate
    panels: list[tuple[str, str]]
    legend: list[tuple[str, Key]]


def _drawn(data: ReportData) -> list[Drawn]:
    kinds: dict[str, list[Plate]] = {}
    for plate in plates(data):
        kinds.setdefault(plate.key, []).append(plate)
    found = []
    with plotting.styled():
        for every in kinds.values():
            panels = []
            for plate, panel in ((it, panel) for it in every for panel in it.panels):
                figure = plotting.panel(panel.draw, size=plate.size, rows=plate.rows)
                panels.append((panel.title, plotting.data_uri(plotting.png(figure), "png")))
            found.append(Drawn(every[0], panels, [(_sign(key), key) for key in every[0].legend]))
    return found


def _sign(key: Key) -> str:
    return _SWATCHES[key.fill] if key.mark == "swatch" else _SIGNS[key.mark]


def _pictures(
    data: ReportData, cell: Measurement, anchor: FocusAnchor
) -> list[tuple[str, str, str]]:
    """Caption, alternative text and data URI of each picture of an anchor; none without them."""
    preview = data.previews.get((cell.operation, anchor.index))
    if preview is None:
        return []
    which = f"anchor {anchor.identity}"
    shown = [
        ("clean", f"Clean frame of {which}", preview.clean),
        ("perturbed", f"The frame of {which} under {cell.shift}", preview.perturbed),
    ]
    if preview.partner is not None:
        text = f"Frame of the nearest different state to {which}"
        shown.append(("different state", text, preview.partner))
    return [(caption, text, plotting.frame_uri(frames)) for caption, text, frames in shown]
