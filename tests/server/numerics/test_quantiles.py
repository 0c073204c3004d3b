"""Quantiles are NumPy's, and selection block by block finds what sorting finds."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.quantiles import bracket, linear_quantile, median, order_statistics
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

VALUES = hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6))


@given(VALUES, st.floats(0, 1), st.sampled_from([1, 2]))
def test_quantile_is_numpys(values: np.ndarray, quantile: float, copies: int) -> None:
    """Two copies of every value are counted without building them."""
    expected = np.quantile(np.repeat(values, copies), quantile)
    actual = linear_quantile(torch.from_numpy(values), quantile, copies=copies)
    assert actual == pytest.approx(expected, rel=1e-15, abs=1e-300)


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9))))
def test_median_is_numpys(values: np.ndarray) -> None:
    values = np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0) / 4  # no overflow of a sum
    np.testing.assert_array_equal(
        median(torch.from_numpy(values)).numpy(), np.median(values, axis=-1)
    )


def test_the_sample_is_left_in_its_order() -> None:
    values = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    linear_quantile(values, 0.5)
    assert values.tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("count", "quantile", "words"),
    [*((3, q, r"must lie in \[0, 1\]") for q in (-0.1, 1.1, math.nan)), (0, 0.9, "more anchors")],
)
def test_what_has_no_quantile_is_refused(count: int, quantile: float, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        linear_quantile(torch.zeros(count, dtype=torch.float64), quantile)


# Few distinct values, so that ties straddle every rank and every end of an interval.
TIED = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, math.inf])
MIXED = hnp.arrays(np.float64, st.integers(1, 60), elements=TIED | st.floats(0, 3))


class Passes:
    """Serves values in blocks and counts how often they were read."""

    def __init__(self, values: np.ndarray, size: int) -> None:
        self.values = values
        self.size = size
        self.read = 0

    def __call__(self) -> Iterator[np.ndarray]:
        self.read += 1
        for start in range(0, len(self.values), self.size):
            yield self.values[start : start + self.size]


@settings(max_examples=100)
@given(st.data())
def test_every_rank_is_that_of_the_sorted_values(data: st.DataObject) -> None:
    values = data.draw(MIXED)
    ranks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=3))
    ends = sorted([data.draw(TIED), data.draw(st.just(-math.inf) | TIED)])
    passes = Passes(values, data.draw(st.integers(1, 60)))
    room = data.draw(st.integers(4, 70))
    found = order_statistics(passes, ranks, (ends[0], ends[1]), room)
    assert found == np.sort(values)[ranks].tolist()
    assert passes.read <= 12


def test_all_values_equal_need_no_room() -> None:
    passes = Passes(np.full(100_000, 2.5), 999)
    assert order_statistics(passes, [0, 50_000, 99_999], (-math.inf, math.inf), 16) == [2.5] * 3
    assert passes.read <= 12


@pytest.mark.parametrize("position", [0.0, 0.001, 0.35, 0.5, 1.0])
def test_a_sampled_guess_makes_one_pass_enough(position: float) -> None:
    """A million values with room for 60,000: the bracket of a sample holds the rank."""
    generator = np.random.default_rng(3)
    values = generator.gamma(2.0, 1.0, 1_000_000)
    guess = bracket(generator.choice(values, 20_000), position)
    passes = Passes(values, 70_000)
    rank = round(position * (len(values) - 1))
    found = order_statistics(passes, [rank, max(0, rank - 1)], guess, 60_000)
    assert found == np.sort(values)[[rank, max(0, rank - 1)]].tolist()
    assert passes.read == 1


def test_a_hopeless_guess_costs_passes_only() -> None:
    values = np.random.default_rng(4).permutation(np.arange(50_000.0))
    passes = Passes(values, 1_000)
    assert order_statistics(passes, [25_000, 25_001], (-2.0, -1.0), 500) == [25_000.0, 25_001.0]
    assert passes.read <= 8
