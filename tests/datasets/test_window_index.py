"""Window numbers against the plain list of (episode, start)."""

import numpy as np
import pytest
from acpc.contract import InvalidArgument
from acpc.datasets import WindowIndex
from hypothesis import given
from hypothesis import strategies as st


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


@pytest.mark.parametrize("index", [-1, 3])
def test_a_number_outside_the_list_is_refused(index: int) -> None:
    windows = WindowIndex(np.array([4, 1]), num_steps=2, frameskip=1)
    with pytest.raises(InvalidArgument, match="between 0 and 2"):
        windows.locate(np.array([0, index]))


@pytest.mark.parametrize(("num_steps", "frameskip"), [(0, 1), (1, 0), (-1, 1)])
def test_steps_and_frameskip_are_at_least_one(num_steps: int, frameskip: int) -> None:
    with pytest.raises(InvalidArgument, match="give at least 1"):
        WindowIndex(np.array([4]), num_steps=num_steps, frameskip=frameskip)
