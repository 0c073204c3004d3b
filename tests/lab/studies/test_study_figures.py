"""Figures show what the summaries hold, and are the same every time."""

import numpy as np
import pytest
from acpc_lab.plotting import png, styled
from acpc_lab.studies import paper
from acpc_lab.studies.drift import drift_errors
from acpc_lab.studies.horizons import horizon_ratios
from acpc_lab.studies.planner import PlannerCell, planner_errors
from acpc_lab.studies.sensitivity import (
    Sensitivity,
    SensitivityRatio,
    sensitivities,
    sensitivity_ratios,
)
from acpc_lab.studies.statistics import Spread
from acpc_lab.studies.thresholds import splits
from matplotlib.figure import Figure
from study_examples import SWEEP, evidence


def drawn() -> dict[str, Figure]:
    with styled():
        shifts = evidence("shifts", paper.shift_rows().columns()).figures()
        collapse = evidence("collapse", paper.collapse_rows().columns()).figures()
        cells = [PlannerCell("a", "0", 2.0, 1.0), PlannerCell("b", "0", 4.0, 1.0)]
        ratios = [
            SensitivityRatio("a", "0", 0.08, "jvp", 0.0029, 0.0003),
            SensitivityRatio("a", "0", 0.08, "finite_difference", 0.0027, 0.01),
        ]
        return {
            **shifts,
            "collapse": collapse["checkpoints"],
            "drift": drift_errors(paper.drift_cells()),
            "splits": splits(paper.splits()),
            "sweep": evidence("thresholds", SWEEP).figures()["sweep"],
            "horizons": horizon_ratios(paper.ir_reductions(), 8, 0.9),
            "planner": planner_errors(cells, Spread.of([0.6])),
            "sensitivity": sensitivity_ratios(ratios),
            "norms": sensitivities([Sensitivity("a", "0", 0.0, "jvp", 8, 2, 36.0, 1.0)]),
        }


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    return drawn()


def drawn_bytes(figure: Figure) -> bytes:
    with styled():
        return png(figure)


@pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.nightly)])
@pytest.mark.process
def test_figures_are_deterministic(figures: dict[str, Figure], count: int) -> None:
    again = drawn()
    assert len(figures) == 10
    for name in sorted(figures)[:count]:
        assert drawn_bytes(figures[name]) == drawn_bytes(again[name]), name


def test_drift_has_a_panel_per_task_with_the_printed_errors(figures: dict[str, Figure]) -> None:
    axes = figures["drift"].axes
    assert [axis.get_title(loc="left") for axis in axes] == ["TwoRoom", "PushT", "Reacher", "Cube"]
    runs = [line.get_ydata() for line in axes[0].lines if len(line.get_ydata()) == 3]
    np.testing.assert_array_equal(runs[0], [2.535, 2.099, 0.755])
    diamonds = [line.get_ydata()[0] for line in axes[0].lines if line.get_marker() == "D"]
    np.testing.assert_allclose(diamonds[2], np.mean([0.755, 0.866, 1.006]))


def test_pairs_that_disagree_are_hollow(figures: dict[str, Figure]) -> None:
    points = [line for line in figures["pairs"].axes[0].lines if len(line.get_xdata()) == 1]
    hollow = [line for line in points if line.get_markerfacecolor() == "none"]
    assert (len(points), len(hollow)) == (24, 2)
    assert all(line.get_ydata()[0] == 4.0 for line in hollow)


def test_the_sweep_shows_thresholds_and_recovered_levels(figures: dict[str, Figure]) -> None:
    axes = figures["sweep"].axes
    assert len(axes) == 6
    success, ir = axes[0], axes[2]
    assert len(success.patches) == 1  # a recovers at level 2 alone
    dotted = [line.get_ydata()[0] for line in ir.lines if line.get_linestyle() == ":"]
    assert dotted == [0.1]


def test_the_planner_shows_errors_and_their_reduction_row_by_row(
    figures: dict[str, Figure],
) -> None:
    """Bars in per cent, so that a few per cent of a large error can be seen."""
    left, right = figures["planner"].axes
    baseline, expanded = (line for line in left.lines if line.get_marker() in "os")
    assert list(baseline.get_xdata()) == [2.0, 4.0]
    assert list(expanded.get_xdata()) == [1.0, 1.0]
    assert [bar.get_width() for bar in right.patches] == [50.0, 75.0]
    assert [label.get_text() for label in right.get_yticklabels()] == ["50.0 %", "75.0 %"]
    assert list(baseline.get_ydata()) == [
        bar.get_y() + bar.get_height() / 2 for bar in right.patches
    ]
    assert left.get_ylim() == right.get_ylim()
