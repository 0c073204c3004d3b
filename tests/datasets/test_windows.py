"""Windows of a dataset: their index, their labels, and the order in which torch draws them."""

import math

import numpy as np
import numpy_reference as reference
import pytest
import torch
from acpc.contract import InvalidArgument
from acpc.datasets import WindowIndex, median_split_labels
from acpc.datasets.windows import TorchOrder
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

GRID = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 14), st.integers(1, 3)),
    elements=st.integers(-3, 3).map(float),
)
SEEDS = [0, 9101, 2**32 - 1, 2**32 + 9101, 2**64 - 1]


def listed(lengths: list[int], num_steps: int, frameskip: int) -> list[tuple[int, int]]:
    windows = []
    for episode, length in enumerate(lengths):
        for start in range(length):
            if start + num_steps * frameskip <= length:
                windows.append((episode, start))
    return windows


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 6), st.integers(1, 6))
def test_windows_are_numbered_episode_major(
    lengths: list[int], num_steps: int, frameskip: int
) -> None:
    windows = WindowIndex(np.array(lengths), num_steps=num_steps, frameskip=frameskip)
    expected = listed(lengths, num_steps, frameskip)
    assert len(windows) == len(expected)
    episode, start = windows.locate(np.arange(len(windows)))
    assert list(zip(episode.tolist(), start.tolist(), strict=True)) == expected


def test_billions_of_windows_take_no_list() -> None:
    windows = WindowIndex(np.full(1000, 10**7), num_steps=11, frameskip=5)
    per_episode = 10**7 - 55 + 1
    assert len(windows) == 1000 * per_episode
    episode, start = windows.locate(np.array([0, per_episode, len(windows) - 1]))
    assert episode.tolist() == [0, 1, 999]
    assert start.tolist() == [0, 0, per_episode - 1]


@given(GRID)
def test_labels_split_strictly_above_each_median(features: np.ndarray) -> None:
    assert median_split_labels(features).tolist() == reference.median_split_labels(features)


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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [1, 2, 3, 1000, 2**16, 2**16 + 1, 2**17 + 5])
def test_a_permutation_and_what_is_drawn_after_it(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    wanted = torch.randperm(count, generator=generator).numpy()
    order = TorchOrder(seed)
    np.testing.assert_array_equal(np.concatenate(list(order.permutation(count))), wanted)
    for limit in (1, 7, 1000, 2**27, 2**28 - 1):
        assert order.randint(limit) == int(torch.randint(limit, (1,), generator=generator))
