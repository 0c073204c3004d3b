"""Figures show what the summaries hold, and are the same every time."""

import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from acpc_lab.plotting import png, styled
from acpc_lab.studies import paper
from acpc_lab.studies.collapse import CollapseLine, collapse_bars
from acpc_lab.studies.drift import DriftCell, drift_errors
from acpc_lab.studies.geometry import SPACES, GeometrySummary, SpaceGeometry, numbers
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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from study_examples import SWEEP, evidence, geometry


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


def test_diamonds_of_nearly_equal_errors_are_drawn_whole() -> None:
    with styled():
        figure = drift_errors([DriftCell("a", "0", 2.01, 2.0, 1.99, "encoder", 0, 4)])
        figure.draw_without_rendering()
    axis = figure.axes[0]
    top = max(line.get_window_extent().y1 for line in axis.lines if line.get_marker() == "D")
    assert axis.get_ylim()[0] == 0
    assert top <= axis.bbox.y1


def test_values_on_the_bars_of_geometry_have_three_digits() -> None:
    spaces = [SpaceGeometry("a", "0", 0.08, space, 9, 1.04, 0.5, 0.5) for space in SPACES]
    figure = numbers(GeometrySummary(tuple(spaces)))
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.04"] * 2


def test_bars_are_means_over_runs(figures: dict[str, Figure]) -> None:
    left, right = figures["bars"].axes
    heights = [patch.get_height() for patch in left.patches]
    assert heights[0] == pytest.approx(np.mean([55.7, 36.0, 37.7]))
    assert len(heights) == len(right.patches) == 8


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


@pytest.mark.parametrize("name", ["sensitivity", "norms"])
def test_sensitivity_is_drawn_on_a_log_axis_with_labels(
    figures: dict[str, Figure], name: str
) -> None:
    """A ratio of 0.003 is no invisible bar, also with an error that reaches below zero."""
    (axis,) = figures[name].axes
    low, high = axis.get_ylim()
    assert axis.get_yscale() == "log"
    labels = [float(label.get_text()) for label in axis.get_yticklabels()]
    assert len(labels) >= 2 and all(low <= label <= high for label in labels)
    drawn = [line.get_ydata()[0] for line in axis.lines if line.get_marker() in "os"]
    assert drawn and all(low < value < high for value in drawn)


def test_a_marker_of_the_pairs_means_one_thing(figures: dict[str, Figure]) -> None:
    """Shapes are shifts; colours and filling have entries without a shape."""
    legend = figures["pairs"].axes[0].get_legend()
    shapes = [key.get_marker() for key in legend.legend_handles if isinstance(key, Line2D)]
    assert len(shapes) == len(set(shapes)) == 2
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[-3:] == ["blur", "resize", "hollow: sign disagrees"]


@functools.cache
def with_long_names() -> dict[str, Figure]:
    """Figures of checkpoints with names as sweeps have them."""
    levels, runs = (0.0, 0.02, 0.16), ("3072", "3073")
    collapse = [
        CollapseLine(f"checkpoints/two-room-{name}", 4.0, 1.0, 0.0316, 0.456, 96.3, False, None)
        for name in ("base", "augmented", "collapsed")
    ]
    spaces = [
        SpaceGeometry("two-room-b", run, level, space, 64, 10.59, 0.0078, 0.094)
        for run in runs
        for level in levels
        for space in ("encoder", "rollout")
    ]
    norms = [
        Sensitivity("two-room-b", run, level, method, 32, 4, 1950.0 - 1900 * level, 90.0)
        for run in runs
        for level in levels
        for method in ("jvp", "finite_difference")
    ]
    cells = [PlannerCell("two-room-b", run, 0.4, 0.4 - 0.01 * int(run[-1])) for run in runs]
    with styled():
        return {
            "collapse": collapse_bars(collapse),
            "geometry": numbers(GeometrySummary(tuple(spaces))),
            "norms": sensitivities(norms),
            "planner": planner_errors(cells, Spread.of([0.06])),
        }


def unseen(axes: Axes) -> Iterator[Text]:
    """Labels of ticks beyond the ends, which are not drawn."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)


@pytest.mark.parametrize("name", ["collapse", "geometry", "norms", "planner"])
def test_words_stay_within_a_figure_and_apart(name: str) -> None:
    """Titles, names and values, as laid out, of the figures whose names are the user's."""
    figure = with_long_names()[name]
    with styled():
        figure.draw_without_rendering()
        shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
        hidden = [text for axes in figure.axes for text in unseen(axes)]
        boxes = [
            (text.get_text(), text.get_window_extent().padded(-1.0))
            for text in shown
            if text not in hidden
        ]
    for (one, box), (other, second) in itertools.combinations(boxes, 2):
        assert one == other or not box.overlaps(second), (one, other)
    for text, box in boxes:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, text


def test_qualitative_pictures_say_so() -> None:
    with styled():
        figure = geometry().figures()["tsne"]
    assert "qualitative" in figure._supxlabel.get_text()
    assert len(figure.axes) == 2
    assert "r/NN" in figure.axes[0].texts[0].get_text()
