"""Figures of a report: what each mark, colour and label means."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from acpc_lab.plotting import LEVELS, MARKERS, panel, spread, styled
from acpc_lab.report.figures import Plate, plates
from acpc_lab.report.figures.plate import Panel
from acpc_lab.report.model import ReportData
from matplotlib.figure import Figure
from report_samples import judged, side, sweep

NINE = (0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16)
SWEEPS = {
    "tasks": lambda: sweep(levels=(0, 0.02, 0.08), runs=("1", "2")),
    "levels": lambda: sweep(("tworoom",), ("1", "2", "3"), NINE, ("gaussian_noise:0.08",)),
    "runs": lambda: sweep(("t",), tuple("123456789"), (0, 0.08), ("blur:15",)),
    "epochs": lambda: sweep(("t",), ("1",), tuple(range(12)), ("blur:15",)),
    "alone": lambda: sweep(("t",), ("1",), (0.08,), ("blur:15",)),
}


@pytest.fixture(scope="module", params=SWEEPS)
def drawn(request: pytest.FixtureRequest) -> list[tuple[Plate, list[Figure]]]:
    data: ReportData = SWEEPS[request.param]()
    with styled():
        return [(plate, [_figure(plate, one) for one in plate.panels]) for plate in plates(data)]


def _figure(plate: Plate, one: Panel) -> Figure:
    return panel(one.draw, size=plate.size, rows=plate.rows)


def _shapes(figures: list[Figure]) -> Iterator[str]:
    for figure in figures:
        for axis in figure.axes:
            yield from (str(line.get_marker()) for line in axis.lines)


def test_a_marker_means_one_thing(drawn: list[tuple[Plate, list[Figure]]]) -> None:
    """Each shape has at most one entry in the legend; with several shapes, each has one."""
    for plate, figures in drawn:
        told = Counter(key.mark for key in plate.legend if key.mark in MARKERS)
        assert all(count == 1 for count in told.values()), (plate.key, told)
        used = {shape for shape in _shapes(figures) if shape in MARKERS}
        assert used == set(told) or (len(used) <= 1 and not told), (plate.key, used, told)


def test_a_colour_has_one_entry_in_the_legend(drawn: list[tuple[Plate, list[Figure]]]) -> None:
    for plate, _ in drawn:
        colours = Counter(key.colour for key in plate.legend if key.colour in LEVELS)
        assert all(count == 1 for count in colours.values()), (plate.key, colours)


def test_log_axes_have_labels(drawn: list[tuple[Plate, list[Figure]]]) -> None:
    for plate, figures in drawn:
        for axes in (axis for figure in figures for axis in figure.axes):
            for axis in (axes.xaxis, axes.yaxis):
                # Of axes over one another, the lowest bears the labels of x.
                bare = axis.get_tick_params().get("labelbottom") is False
                if axis.get_scale() == "log" and not bare:
                    low, high = axis.get_view_interval()
                    ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
                    shown = [text for at, text in ticks if low <= at <= high and text.get_text()]
                    assert len(shown) >= 2, plate.key


def test_levels_that_share_a_colour_share_an_entry() -> None:
    legend = next(plate for plate in plates(SWEEPS["epochs"]()) if plate.key == "steps").legend
    assert [key.text for key in legend[:3]] == ["unaugmented", "1", "2, 3"]


def test_a_figure_has_one_kind_of_axis() -> None:
    """One panel whose numbers span a decade makes all of them logarithmic."""
    data = sweep(("t",), ("1",), (0, 0.01, 0.16), ("blur:15", "gaussian_noise:0.08"))
    still = replace(data.cells[0], shift="identity", score=judged(side("s", 1, 2), side("s", 1, 2)))
    for plate in plates(data.with_(cells=(*data.cells, still))):
        with styled():
            axes = [_figure(plate, one).axes for one in plate.panels]
        for row in zip(*axes, strict=True):
            assert len({(axis.get_xscale(), axis.get_yscale()) for axis in row}) == 1, plate.key


def test_levels_spread_over_the_sequence_in_order() -> None:
    for count in range(1, 13):
        places = [LEVELS.index(colour) for colour in spread(count)]
        assert len(places) == count and places == sorted(places)
        assert count > len(LEVELS) or len(set(places)) == count
