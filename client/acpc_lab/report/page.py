"""Renders the page: one HTML file that makes no network request."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acpc_lab import plotting
from acpc_lab.extras import load
from acpc_lab.plotting import data_uri, style_sheet
from acpc_lab.report.figures import MANY_TASKS, Plate, abreast, plates
from acpc_lab.report.headline import headline, tallies
from acpc_lab.report.limits import limit_table
from acpc_lab.report.measures import checks, common_receipt, protocol_rows
from acpc_lab.report.model import Measurement, ReportData
from acpc_lab.report.tables import grids, standings, table
from acpc_lab.report.worst import FocusAnchor, focus

_ASSETS = Path(__file__).parent / "assets"
_MANY_PANELS = 12


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
    style = style_sheet() + (_ASSETS / "report.css").read_text(encoding="utf-8")
    script = (_ASSETS / "report.js").read_text(encoding="utf-8")
    columns, rows = table(data)
    worst = [(it, [(a, _pictures(data, it.cell, a)) for a in it.anchors]) for it in focus(data)]
    figures = _drawn(data)
    page: str = environment.get_template("report.html.j2").render(
        data=data,
        style=_trusted(style),
        script=_trusted(script),
        policy=_policy(style, script),
        abreast=_abreast,
        headline=headline(data),
        tallies=tallies(data),
        grids=grids(data),
        limits=limit_table(data),
        standings=standings(data),
        columns=columns,
        rows=rows,
        plates=figures,
        focus=worst,
        checks=checks(data),
        protocol=protocol_rows(data),
        receipt=common_receipt(data),
        scored=[cell for cell in data.cells if cell.score is not None],
    )
    return page


@dataclass(frozen=True)
class PlateSet:
    """The plates of one kind: rows of panels as SVG that needs no more escaping.

    Attributes:
        plate: The first plate; its title, caption and legend stand for all.
        rows: Heading, empty for none, and panels of each row.
    """

    plate: Plate
    rows: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def wide(self) -> bool:
        """Whether it needs the page's whole width."""
        return sum(len(panels) for _, panels in self.rows) > 1

    @property
    def folded(self) -> bool:
        """Whether there are so many panels that they are shown when asked for."""
        return max(len(panels) for _, panels in self.rows) > _MANY_PANELS


def _abreast(count: int) -> str:
    """Classes that say how many of so many stand in a row where there is room for two to four."""
    return " ".join(f"w{room}-{abreast(count, room)}" for room in (2, 3, 4))


def _drawn(data: ReportData) -> list[PlateSet]:
    kinds: dict[str, list[Plate]] = {}
    for plate in plates(data):
        kinds.setdefault(plate.key, []).append(plate)
    found = []
    with plotting.styled():
        for key, group in kinds.items():
            rows = [
                (plate.shift, tuple(_inline(plate, f"{key}{row}")))
                for row, plate in enumerate(group)
            ]
            if len(data.tasks) < MANY_TASKS or len(rows) == 1:
                rows = [("", tuple(panel for _, panels in rows for panel in panels))]
            found.append(PlateSet(group[0], tuple(rows)))
    return found


def _inline(plate: Plate, key: str) -> Iterator[str]:
    for column, panel in enumerate(plate.panels):
        figure = plotting.panel(panel.draw, size=plate.size, rows=plate.rows)
        yield _trusted(plotting.inline(figure, f"{key}-{column}", panel.description))


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
    return [(caption, text, data_uri(frames)) for caption, text, frames in shown]


def _trusted(text: str) -> str:
    """Text of our own making, which the template shall not escape."""
    marked: str = load("markupsafe").Markup(text)
    return marked


def _policy(style: str, script: str) -> str:
    """A policy that lets in this style, this script and embedded images, and nothing else."""
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
