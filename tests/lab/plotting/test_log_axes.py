"""Log axes carry labels, however narrow or wide they are."""

import math

import pytest
from acpc_lab.plotting import logarithmic
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure


@pytest.fixture(scope="module")
def axis() -> Axes:
    """Making one takes longer than all that is done with it."""
    drawn: Axes = Figure().subplots()
    return drawn


@given(low=st.floats(1e-12, 1e6), ratio=st.floats(1.01, 1e12))
@example(low=0.4, ratio=2.0)
@example(low=0.11, ratio=8.0)
@example(low=1.4, ratio=1.01)
@pytest.mark.parametrize("which", ["x", "y"])
def test_a_log_axis_has_two_to_six_labels_within_it(
    axis: Axes, low: float, ratio: float, which: str
) -> None:
    """Their texts are numbers, each another, and say where they stand."""
    logarithmic(axis, which, low, low * ratio)
    drawn = axis.xaxis if which == "x" else axis.yaxis
    labels = [label.get_text() for label in drawn.get_ticklabels()]
    assert 2 <= len(set(labels)) == len(labels) <= 6
    for place, label in zip(drawn.get_ticklocs(), labels, strict=True):
        assert low <= place <= low * ratio
        assert math.isclose(float(label), place, rel_tol=1e-9)
    assert drawn.get_scale() == "log"
