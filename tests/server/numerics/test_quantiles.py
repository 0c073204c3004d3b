"""Quantiles are NumPy's, and selection block by block finds what sorting finds."""

import math

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.quantiles import linear_quantile, median, order_statistics
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

VALUES = hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6))


@given(VALUES, st.floats(0, 1))
def test_quantile_is_numpys(values: np.ndarray, quantile: float) -> None:
    given_values = torch.from_numpy(values.copy())
    actual = linear_quantile(given_values, quantile)
    assert actual == pytest.approx(np.quantile(values, quantile), rel=1e-15, abs=1e-300)
    assert given_values.tolist() == values.tolist(), "the sample is left in its order"


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9))))
def test_median_is_numpys(values: np.ndarray) -> None:
    values = np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0) / 4  # no overflow of a sum
    np.testing.assert_array_equal(
        median(torch.from_numpy(values)).numpy(), np.median(values, axis=-1)
    )


@pytest.mark.parametrize(
    ("count", "quantile", "words"),
    [*((3, q, r"must lie in \[0, 1\]") for q in (-0.1, 1.1, math.nan)), (0, 0.9, "more anchors")],
)
def test_what_has_no_quantile_is_refused(count: int, quantile: float, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        linear_quantile(torch.zeros(count, dtype=torch.float64), quantile)


# Few distinct values, so that ties straddle every rank.
TIED = st.sampled_from([0.0, -0.0, 5e-324, 0.5, 1.0, 1.5, 2.0, math.inf])
MIXED = hnp.arrays(np.float64, st.integers(1, 60), elements=TIED | st.floats(0))


@given(st.data())
def test_every_rank_is_that_of_the_sorted_values(data: st.DataObject) -> None:
    values = data.draw(MIXED)
    ranks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=3))
    size = data.draw(st.integers(20, 60))  # a block takes a while, however small
    blocks = [values[start : start + size] for start in range(0, len(values), size)]
    assert order_statistics(lambda: blocks, ranks) == np.sort(values)[ranks].tolist()


def test_a_rank_of_many_values_takes_three_passes() -> None:
    values, read = np.random.default_rng(3).gamma(2.0, 1.0, 300_000), list[int]()

    def passes() -> list[np.ndarray]:
        read.append(1)
        return np.split(values, 3)

    ranks = [0, 105_000, 105_001, 299_999]
    assert order_statistics(passes, ranks) == np.sort(values)[ranks].tolist()
    assert len(read) == 3
