"""Draws the pictures of these pages that show the paper's printed tables.

    python docs/studies/draw.py

The others are figures of studies of the demo's checkpoints; each page says with which command.
"""

from __future__ import annotations

from pathlib import Path

from acpc_lab.plotting import styled
from acpc_lab.studies import STUDIES, Evidence, horizons, paper
from acpc_lab.studies.drift import errors
from acpc_lab.studies.figures import by_row
from acpc_lab.studies.thresholds import splits

HERE = Path(__file__).parent


def main() -> None:
    """Write one SVG per page."""
    with styled():
        printed = horizons.HorizonSummary(8, 0.90, paper.ir_reductions(), 0.09)
        collapse = Evidence.of(STUDIES["collapse"], paper.collapse_rows()).figures()
        ratios = next(part for part in horizons.shown(printed) if not isinstance(part, str))
        figures = {
            "thresholds": by_row(splits(paper.splits())),
            "shifts": Evidence.of(STUDIES["shifts"], paper.shift_rows()).figures()["bars"],
            "drift": by_row(errors(paper.drift_cells())),
            "horizons": by_row(ratios),
            "collapse": collapse["checkpoints"],
        }
        for name, figure in figures.items():
            figure.savefig(
                HERE / f"{name}.svg", metadata={"Date": None, "Creator": None}, facecolor="white"
            )


if __name__ == "__main__":
    main()
