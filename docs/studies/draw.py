"""Draws the pictures of these pages that show the paper's printed tables.

    python docs/studies/draw.py

The others are figures of studies of the demo's checkpoints; each page says with which command.
"""

from __future__ import annotations

from pathlib import Path

from acpc_lab.plotting import styled
from acpc_lab.studies import STUDIES, Evidence, paper
from acpc_lab.studies.collapse import collapse_figure
from acpc_lab.studies.drift import drift_errors
from acpc_lab.studies.horizons import horizon_ratios
from acpc_lab.studies.shifts import shift_scatter
from acpc_lab.studies.thresholds import splits

HERE = Path(__file__).parent


def main() -> None:
    """Write one SVG per page."""
    with styled():
        pairs = Evidence.of(STUDIES["shifts"], paper.shift_rows()).summary.pairs
        lines = Evidence.of(STUDIES["collapse"], paper.collapse_rows()).summary.checkpoints
        figures = {
            "thresholds": splits(paper.splits()),
            "shifts": shift_scatter(pairs),
            "drift": drift_errors(paper.drift_cells()),
            "horizons": horizon_ratios(paper.ir_reductions(), 8, 0.90),
            "collapse": collapse_figure(lines),
        }
        for name, figure in figures.items():
            figure.savefig(
                HERE / f"{name}.svg", metadata={"Date": None, "Creator": None}, facecolor="white"
            )


if __name__ == "__main__":
    main()
