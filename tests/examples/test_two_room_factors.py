"""The two-room world's factors of variation: other looks of the same states."""

import numpy as np
import pytest
from factors import FACTORS, render_factor
from world import Floats, render, simulate


@pytest.fixture(scope="module")
def positions() -> Floats:
    return simulate(4, 3, 5).positions[:, ::5]


@pytest.mark.parametrize("factor", FACTORS)
def test_a_factor_changes_the_look_by_its_level(factor: str, positions: Floats) -> None:
    plain = render(positions).astype(int)
    views = [
        render_factor(positions, factor, level, np.random.default_rng(3)).astype(int)
        for level in (0.0, 1 / 3, 2 / 3, 1.0)
    ]
    assert np.array_equal(views[0], plain)
    apart = [np.abs(view - plain).mean() for view in views]
    assert apart == sorted(apart)
    assert apart[1] > 0.1
    again = render_factor(positions, factor, 1.0, np.random.default_rng(3))
    assert np.array_equal(views[3], again)


@pytest.mark.parametrize("factor", FACTORS)
def test_every_state_still_shows(factor: str) -> None:
    """Two places of the agent give two pictures, under every look."""
    places = np.array([[0.2, 0.2], [0.2, 0.8], [0.8, 0.5]])
    for seed in range(20):
        view = render_factor(places, factor, 1.0, np.random.default_rng(seed)).astype(int)
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert np.abs(view[one] - view[other]).max() > 20


def test_a_level_of_each_frame_is_that_frames_own(positions: Floats) -> None:
    levels = np.linspace(0, 1, positions[..., 0].size).reshape(positions.shape[:-1])
    together = render_factor(positions, "agent_size", levels, np.random.default_rng(0))
    for place in np.ndindex(levels.shape):
        one = render_factor(positions[place], "agent_size", levels[place], np.random.default_rng(0))
        assert np.array_equal(together[place], one)
