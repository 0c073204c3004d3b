"""Renders the page, an HTML file that makes no request, and writes its figures as files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpc_lab import plotting
from acpc_lab.extras import load
from acpc_lab.report.figures import Plate, distributions, levels, plane
from acpc_lab.report.headline import headline
from acpc_lab.report.model import ReportData, printable
from acpc_lab.report.receipts import checks, receipt, wanted
from acpc_lab.report.verdicts import grids, limit_table, standings, table
from acpc_lab.report.worst import FocusAnchor, focus
from acpc_lab.sweeps import CellResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ASSETS = Path(__file__).parent / "assets"


def plates(data: ReportData) -> list[Plate]:
    """Every figure that the data has values for, in the order of the page."""
    drawn = [
        *(levels(data, shift) for shift in data.shifts if data.has_levels),
        plane(data),
        *(distributions(data, shift) for shift in data.shifts),
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
        figures=_figures(data),
        focus=[(it, [(a, _pictures(data, it.cell, a)) for a in it.anchors]) for it in focus(data)],
        wanted=wanted,
        checks=checks(data),
        receipt=receipt(data),
        scored=[cell for cell in data.cells if cell.score is not None],
    )
    return page


def _drawn(data: ReportData) -> Iterator[tuple[Plate, str, Figure]]:
    """Each panel with its plate and title, to be saved before the next one is drawn."""
    with plotting.styled():
        for plate in plates(data):
            for title, draw in plate.panels:
                yield plate, title, plotting.panel(draw, size=plate.size, rows=plate.rows)


def _figures(data: ReportData) -> list[tuple[Plate, list[tuple[str, str]]]]:
    """The panels of each kind, with title and data URI; the first plate stands for all."""
    kinds: dict[str, tuple[Plate, list[tuple[str, str]]]] = {}
    for plate, title, figure in _drawn(data):
        uri = plotting.data_uri(plotting.png(figure), "png")
        kinds.setdefault(plate.key, (plate, []))[1].append((title, uri))
    return list(kinds.values())


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
    """Writes every panel of the page as SVG and PNG.

    Raises FailedPrecondition: matplotlib is not installed; OSError: The folder cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    taken: dict[str, int] = {}
    for plate, title, figure in _drawn(data):
        parts = (plate.key, plate.shift, title.replace(plate.shift, "") if plate.shift else title)
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(filter(None, parts))).strip("-.").lower()
        taken[name] = taken.get(name, 0) + 1
        name += f"-{taken[name]}" if taken[name] > 1 else ""
        written += plotting.write(figure, target, name)
    return written
