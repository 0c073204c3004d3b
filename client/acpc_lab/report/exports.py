"""Writes figures as SVG and PNG, and what they are drawn from as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from acpc_lab import plotting
from acpc_lab.evidence import evidence_columns
from acpc_lab.extras import load
from acpc_lab.report.figures import Key, Plate, plates
from acpc_lab.report.model import ReportData
from acpc_lab.tables import Row, Table

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_LABELS = ("task", "run", "level", "shift", "success", "clean_success")
_NUMBERS = (
    "ir_raw", "rounding_floor", "ir_relative", "sr", "score", "delta_score", "anchors", "eligible",
    "skipped", "median_latent_distance", "threshold_ir", "threshold_sr", "checkpoint_digest",
    "reference_digest", "anchors_digest",
)  # fmt: skip
_OF_ANCHORS = {
    "anchor": "anchor_ids",
    "radius": "radius",
    "motion_scale": "motion_scale",
    "different_state_distance": "different_state_distance",
    "partner": "partner",
}
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_MAX_COLUMNS = 4
_LEGEND_INCHES, _LEGEND_LINE_INCHES = 0.2, 0.16
_KEY_INCHES = 0.55
_LETTER_INCHES = 0.06


def export_figures(data: ReportData, folder: str | Path) -> list[Path]:
    """Writes every figure as SVG and PNG, and cells, anchors and steps as CSV.

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
            written += plotting.write(composed(plate), target, name)
    for name, rows in (("cells", _cells), ("anchors", _anchors), ("steps", _steps)):
        path = target / f"{name}.csv"
        Table(rows(data), behind="checkpoint").save(path)
        written.append(path)
    return written


def composed(plate: Plate) -> Figure:
    """All panels of a plate in one figure, with the legend below."""
    columns = min(len(plate.panels), _MAX_COLUMNS)
    lines = -(-len(plate.panels) // columns)
    width, height = plate.size
    longest = max((len(key.text) for key in plate.legend), default=0)
    entry = _KEY_INCHES + _LETTER_INCHES * longest
    keys = max(1, min(len(plate.legend), int(columns * width / entry)))
    below = _LEGEND_INCHES + _LEGEND_LINE_INCHES * -(-len(plate.legend) // keys)
    figure: Figure = load("matplotlib.figure").Figure(
        figsize=(columns * width, lines * height + below), layout="constrained"
    )
    parts = figure.subfigures(lines, columns, squeeze=False).ravel()
    for part, panel in zip(parts, plate.panels, strict=False):
        axes = part.subplots(plate.rows, 1, sharex=True, squeeze=False)[:, 0]
        panel.draw(list(axes))
    figure.legend(
        handles=[_handle(key) for key in plate.legend], loc="outside lower center", ncols=keys
    )
    return figure


def _handle(key: Key) -> Artist:
    if key.mark in ("region", "swatch"):
        return plotting.swatch(key.text, key.colour, key.fill)
    lines = {"line": "-", "dashes": (0, (3, 1.5)), "dots": (0, (1.2, 2))}
    drawn: Artist = load("matplotlib.lines").Line2D(
        [],
        [],
        color=key.colour,
        linestyle=lines.get(key.mark, "none"),
        marker="" if key.mark in lines else {"bar": "|"}.get(key.mark, key.mark),
        label=key.text,
    )
    return drawn


def _cells(data: ReportData) -> Iterator[Row]:
    for cell in data.cells:
        outcome = cell.value("outcome") or ("pending" if cell.pending else "no_result")
        yield {
            "checkpoint": cell.name,
            **{name: getattr(cell, name) for name in _LABELS},
            "outcome": outcome,
            **{name: cell.value(name) for name in _NUMBERS},
            "problem": cell.problem,
            **evidence_columns(cell.evidence, cell.among),
        }


def _anchors(data: ReportData) -> Iterator[Row]:
    for cell in data.cells:
        if cell.values is not None:
            columns = {name: getattr(cell.values, of).tolist() for name, of in _OF_ANCHORS.items()}
            for index, row in enumerate(zip(*columns.values(), strict=True)):
                found = dict(zip(columns, row, strict=True))
                yield {"checkpoint": cell.name, "shift": cell.shift, "index": index, **found}


def _steps(data: ReportData) -> Iterator[Row]:
    for cell in data.cells:
        if cell.steps is not None:
            for step, values in enumerate(np.quantile(cell.steps, _QUANTILES, axis=0).T.tolist()):
                named = {
                    f"q{100 * q:g}": found for q, found in zip(_QUANTILES, values, strict=True)
                }
                yield {"checkpoint": cell.name, "shift": cell.shift, "step": step + 1, **named}
