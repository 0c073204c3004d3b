"""Medians and quantiles follow NumPy's conventions to the last digit that matters."""

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.quantiles import linear_quantile, median
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

VALUES = hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6))


@given(VALUES, st.floats(0, 1))
def test_quantile_is_numpys(values: np.ndarray, quantile: float) -> None:
    expected = np.quantile(values, quantile)
    actual = linear_quantile(torch.from_numpy(values), quantile)
    assert actual == pytest.approx(expected, rel=1e-15, abs=1e-300)


@given(VALUES, st.floats(0, 1))
def test_two_copies_of_every_value_are_counted_without_building_them(
    values: np.ndarray, quantile: float
) -> None:
    expected = np.quantile(np.repeat(values, 2), quantile)
    actual = linear_quantile(torch.from_numpy(values), quantile, copies=2)
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


@pytest.mark.parametrize("quantile", [-0.1, 1.1, float("nan")])
def test_quantiles_outside_the_unit_interval_are_refused(quantile: float) -> None:
    with pytest.raises(InvalidArgument, match=r"must lie in \[0, 1\]"):
        linear_quantile(torch.zeros(3, dtype=torch.float64), quantile)


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="give more anchors"):
        linear_quantile(torch.zeros(0, dtype=torch.float64), 0.9)
