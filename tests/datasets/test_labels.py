"""Labels split strictly above each median."""

import math

import numpy as np
import numpy_reference as reference
import pytest
from acpc.contract import InvalidArgument
from acpc.datasets import median_split_labels
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

GRID = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 14), st.integers(1, 3)),
    elements=st.integers(-3, 3).map(float),
)


@given(GRID)
def test_labels_split_strictly_above_each_median(features: np.ndarray) -> None:
    assert median_split_labels(features).tolist() == reference.median_split_labels(features)


def test_label_bits_follow_the_feature_order() -> None:
    features = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert median_split_labels(features).tolist() == [2, 1, 3, 0]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.array([[0.0, 1.0], [2.0, math.nan]]), "label_features: row 1"),
        (np.array([[0.0, 1.0], [2.0, math.inf]]), "label_features: row 1"),
        (np.zeros((3, 0)), "makes 0 features"),
        (np.zeros((3, 63)), "makes 63 features"),
        (np.zeros((0, 1)), "anchors: are empty"),
    ],
)
def test_features_that_make_no_label_say_why(features: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        median_split_labels(features)
