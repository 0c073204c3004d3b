"""The demo of factors: a checkpoint trained on other colours survives colours."""

import csv
import sys
from pathlib import Path

import numpy as np
import processes
import pytest
from example_scripts import EXAMPLES
from factor_set import draw_anchors, factor_views
from factors import COLOURS, FACTORS
from waiting import GENEROUS_SECONDS


def test_the_anchors_are_windows_of_the_world_and_their_views_fit_them() -> None:
    anchors, positions = draw_anchors(6)
    assert anchors.frames.shape == (6, 11, 32, 32, 3)
    assert set(np.unique(anchors.labels)) <= {0, 1}
    assert np.isfinite(anchors.action_blocks).all()
    views = factor_views(anchors, positions, levels=(0.5, 1.0), draws=2)
    assert list(views) == [f"{factor}:{level}" for factor in FACTORS for level in ("0.5", "1")]
    again, _ = draw_anchors(6)
    assert np.array_equal(again.frames, anchors.frames)


@pytest.mark.slow
def test_colours_are_survived_by_the_checkpoint_that_was_trained_on_them(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "factor_demo.py", "--out", tmp_path]
    command += ["--anchors", "24", "--draws", "1", "--levels", "1", "--factors", *COLOURS]
    processes.run(command, seconds=4 * GENEROUS_SECONDS)
    with (tmp_path / "cells.csv").open() as file:
        cells = {(row["checkpoint"], row["shift"]): row for row in csv.DictReader(file)}
    with (tmp_path / "certified.csv").open() as file:
        shares = {(row["checkpoint"], row["shift"]): row for row in csv.DictReader(file)}
    assert len(cells) == len(shares) == 3 * len(COLOURS)
    for factor in COLOURS:
        shift = f"given_views:{factor}:1"
        without, trained = (cells[f"two-room-{name}", shift] for name in ("base", "coloured"))
        assert float(trained["ir_raw"]) < 0.2 * float(without["ir_raw"])
        assert float(trained["sr"]) > float(without["sr"]) + 0.3
        certain = [
            int(shares[cell["checkpoint"], shift]["certified"]) for cell in (without, trained)
        ]
        assert certain[1] > certain[0] + 2
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Which factor breaks which checkpoint" in page
    assert "Certified fraction" in page
    assert (tmp_path / "figures" / "factors.svg").exists()
    assert (tmp_path / "worlds.png").exists()
