"""Writes figures as SVG and PNG, and what they are drawn from as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from acpc_lab import plotting
from acpc_lab.evidence import evidence_columns
from acpc_lab.extras import load
from acpc_lab.plotting import light
from acpc_lab.report.figures import Key, Plate, abreast, plates
from acpc_lab.report.measures import step_radius_of
from acpc_lab.report.model import ReportData
from acpc_lab.tables import write_whole

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

Line = Sequence[object]
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
            name = _slug(f"{plate.key}-{plate.shift}" if plate.shift else plate.key)
            taken[name] = taken.get(name, 0) + 1
            name += f"-{taken[name]}" if taken[name] > 1 else ""
            written += plotting.write(composed(plate), target, name)
    for name, lines in (("cells", _cells), ("anchors", _anchors), ("steps", _steps)):
        path = target / f"{name}.csv"
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(lines(data))
        write_whole(path, text.getvalue().encode())
        written.append(path)
    return written


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.").lower()


def composed(plate: Plate) -> Figure:
    """All panels of a plate in one figure, with the legend below."""
    columns = abreast(len(plate.panels), _MAX_COLUMNS)
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
    colour = light(key.role)
    if key.mark in ("region", "swatch"):
        return plotting.swatch(key.text, colour, key.fill)
    lines = {"line": "-", "dashes": (0, (3, 1.5)), "dots": (0, (1.2, 2))}
    drawn: Artist = load("matplotlib.lines").Line2D(
        [],
        [],
        color=colour,
        linestyle=lines.get(key.mark, "none"),
        marker="" if key.mark in lines else {"bar": "|"}.get(key.mark, key.mark),
        label=key.text,
    )
    return drawn


def _cells(data: ReportData) -> Iterable[Line]:
    yield (
        "checkpoint", "task", "run", "level", "shift", "success", "clean_success", "outcome",
        "ir_raw", "rounding_floor", "ir_relative", "sr", "score", "delta_score",
        "anchors", "eligible", "skipped", "median_latent_distance", "t_ir", "t_sr",
        "checkpoint_digest", "reference_digest", "anchors_digest", "problem",
        *evidence_columns(None, None),
    )  # fmt: skip
    for cell in data.cells:
        sure = evidence_columns(cell.evidence, cell.among).values()
        labels = (
            cell.name, cell.task, cell.run, cell.level, cell.shift, cell.success,
            cell.clean_success,
        )  # fmt: skip
        if cell.score is None:
            outcome = "pending" if cell.pending else "no_result"
            yield *labels, outcome, *[""] * 15, cell.problem, *sure
            continue
        side, verdict, receipt = cell.score.checkpoint, cell.score.verdict, cell.score.receipt
        yield (
            *labels, verdict.outcome.name.lower(),
            side.ir_raw, side.rounding_floor, verdict.ir_relative, side.sr, verdict.score,
            verdict.delta_score, side.anchors, side.eligible, side.skipped,
            side.median_latent_distance, verdict.thresholds.ir, verdict.thresholds.sr,
            receipt.checkpoint_digest, receipt.reference_digest, receipt.anchors_digest, "", *sure,
        )  # fmt: skip


def _anchors(data: ReportData) -> Iterable[Line]:
    yield (
        "checkpoint", "shift", "index", "anchor", "radius", "motion_scale",
        "different_state_distance", "partner",
    )  # fmt: skip
    for cell in data.cells:
        values = cell.score.checkpoint.anchor_values if cell.score else None
        if values is None:
            continue
        distance = values.different_state_distance
        rows = zip(
            values.anchor_ids.tolist(), values.radius.tolist(), values.motion_scale.tolist(),
            ["" if np.isnan(found) else found for found in distance.tolist()],
            values.partner.tolist(), strict=True,
        )  # fmt: skip
        for index, row in enumerate(rows):
            yield cell.name, cell.shift, index, *row


def _steps(data: ReportData) -> Iterable[Line]:
    yield "checkpoint", "shift", "step", *(f"q{100 * q:g}" for q in _QUANTILES)
    for cell in data.cells:
        found = step_radius_of(cell.score.checkpoint) if cell.score else None
        if found is None:
            continue
        for step, values in enumerate(np.quantile(found, _QUANTILES, axis=0).T.tolist(), start=1):
            yield cell.name, cell.shift, step, *values
