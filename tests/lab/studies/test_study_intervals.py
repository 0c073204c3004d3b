"""Intervals of success rates, against closed forms and published examples."""

from __future__ import annotations

import math

import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies import STUDIES, Evidence, SweepRows, gain_interval, success_interval
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(1, 300), st.data())
def test_a_success_interval_is_wilsons(episodes: int, data: st.DataObject) -> None:
    """The two rates whose score test is at its edge: (p - q)^2 = z^2 q (1 - q) / n."""
    successes = data.draw(st.integers(0, episodes))
    share, z = successes / episodes, 1.959963984540054
    found = success_interval(100 * share, episodes)
    assert found is not None
    for end in found:
        q = end / 100
        assert (share - q) ** 2 == pytest.approx(z**2 * q * (1 - q) / episodes, abs=1e-9)
    assert -1e-9 <= found[0] <= 100 * share + 1e-9
    assert 100 * share - 1e-9 <= found[1] <= 100 + 1e-9


@pytest.mark.parametrize(
    ("rates", "ends"), [((90.0, 30.0), (17.05, 80.90)), ((100.0, 0.0), (60.75, 100.0))]
)
def test_a_gain_interval_is_newcombes(
    rates: tuple[float, float], ends: tuple[float, float]
) -> None:
    """Of ten episodes each: the examples of Newcombe (1998), method 10."""
    assert gain_interval(*rates, 10) == pytest.approx(ends, abs=0.005)


def test_without_episodes_there_is_no_interval() -> None:
    assert success_interval(50.0, math.nan) is None
    assert gain_interval(50.0, 20.0, math.nan) is None


def test_a_rate_that_episodes_cannot_have_is_rejected() -> None:
    with pytest.raises(ArgumentError, match="episodes: 33 % of 10 episodes is no whole number"):
        success_interval(33.0, 10)
    assert success_interval(33.3, 300) == success_interval(100 * 100 / 300, 300)


def sweep(episodes: float) -> SweepRows:
    """A run of three levels in two tasks: unaugmented, plainly recovered, and between."""
    return SweepRows.of(
        {
            "task": ["a"] * 3 + ["b"] * 3,
            "run": ["0"] * 6,
            "level": [0.0, 1.0, 2.0] * 2,
            "ir_rel": [1.0, 0.1, 0.2] * 2,
            "sr": [0.5, 1.0, 1.0] * 2,
            "success_noisy": [10.0, 100.0, 80.0] * 2,
            "success_clean": [80.0, 100.0, 100.0] * 2,
            "episodes": [episodes] * 6,
        }
    )


def test_levels_whose_intervals_hold_a_cutoff_are_undecided() -> None:
    """Wanted are 82 % under the shift and 75 % on clean views."""
    for episodes, undecided in ((10, (1.0, 2.0)), (100, (2.0,)), (100_000, ())):
        summary = Evidence.of(STUDIES["thresholds"], sweep(episodes)).summary
        assert [run.undecided_levels for run in summary.runs] == [undecided] * 2
    untold = Evidence.of(STUDIES["thresholds"], sweep(math.nan)).summary
    assert (untold.runs[0].success_interval, untold.runs[0].undecided_levels) == (None, ())
