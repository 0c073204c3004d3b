"""Figures show what the summaries hold, and are the same every time."""

import pytest
from acpc_lab.plotting import styled
from acpc_lab.studies import paper
from acpc_lab.studies.drift import drift_errors
from acpc_lab.studies.figures import Panel, by_row
from acpc_lab.studies.horizons import horizon_ratios
from acpc_lab.studies.planner import PlannerCell, planner_errors
from acpc_lab.studies.sensitivity import SensitivityRatio, estimates
from acpc_lab.studies.statistics import Spread
from acpc_lab.studies.thresholds import splits
from matplotlib.axes import Axes
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
            "sensitivity": estimates(ratios, "ratio", "over the unaugmented one's", 1.0),
        }


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    return drawn()


def marks(axis: Axes) -> list[list[float]]:
    """The numbers of each series of a panel, from its first row to its last."""
    drawn = [line for line in axis.lines if line.get_marker() in ("o", "s", "^")]
    return [list(line.get_xdata()) for line in drawn]


def test_a_row_shows_each_printed_error(figures: dict[str, Figure]) -> None:
    (axis,) = figures["drift"].axes
    cells = paper.drift_cells()
    wanted = [[getattr(cell, name) for cell in cells] for name in ("base", "control", "acpc")]
    assert marks(axis) == wanted
    assert axis.get_yticklabels()[0].get_text() == "TwoRoom, run 3072"
    whiskers = figures["sensitivity"].axes[0].collections
    assert len(whiskers) >= 2


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
    left, right = figures["planner"].axes
    assert marks(left) == [[2.0, 4.0], [1.0, 1.0]]
    assert marks(right) == [[50.0, 75.0]]
    assert left.get_ylim() == right.get_ylim()


def test_a_number_that_is_not_there_leaves_its_row_empty() -> None:
    with styled():
        figure = by_row(["a", "b"], [Panel("x", {"one": [None, 2.0]}, line=1.0)])
    assert marks(figure.axes[0]) == [[2.0]]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["2"]
