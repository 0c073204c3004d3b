"""The world obeys its wall, its door and its seed, and draws what it says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from world import (
    DOOR_BOTTOM,
    DOOR_TOP,
    SPEED,
    WALL_LEFT,
    in_wall,
    render,
    simulate,
    step,
)

unit = st.floats(0.0, 1.0)
signed = st.floats(-2.0, 2.0)


@given(x=unit, y=unit, moves=st.lists(st.tuples(signed, signed), min_size=1, max_size=30))
def test_no_action_sequence_enters_the_wall_or_leaves_the_square(
    x: float, y: float, moves: list[tuple[float, float]]
) -> None:
    position = np.array([[x, y]])
    if in_wall(position)[0]:
        position[0, 0] = WALL_LEFT
    for move in moves:
        moved = step(position, np.array([move]))
        assert not in_wall(moved)[0]
        assert ((moved >= 0) & (moved <= 1)).all()
        assert np.abs(moved - position).max() <= SPEED + 1e-12
        if (position[0, 0] - 0.5) * (moved[0, 0] - 0.5) < 0:  # changed rooms
            assert DOOR_TOP <= position[0, 1] <= DOOR_BOTTOM
        position = moved


def test_logged_rows_follow_from_the_logged_actions() -> None:
    log = simulate(episodes=6, blocks=10, seed=3)
    assert log.positions.shape == log.actions.shape == (6, 50, 2)
    assert np.isnan(log.actions[:, -1]).all()
    for t in range(49):
        expected = step(log.positions[:, t], log.actions[:, t])
        np.testing.assert_array_equal(log.positions[:, t + 1], expected)


def test_same_seed_same_episodes_other_seed_others() -> None:
    first, again, other = (simulate(episodes=4, blocks=3, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.positions, again.positions)
    np.testing.assert_array_equal(first.actions, again.actions)
    assert not np.array_equal(first.positions, other.positions)


def test_a_frame_shows_the_agent_in_green_and_blue_where_it_is() -> None:
    frame = render(np.array([0.25, 0.75])).astype(int)
    assert frame.shape == (32, 32, 3)
    red_minus_green = frame[..., 0] - frame[..., 1]
    row, column = np.unravel_index(red_minus_green.argmax(), red_minus_green.shape)
    assert abs((column + 0.5) / 32 - 0.25) <= 1 / 32
    assert abs((row + 0.5) / 32 - 0.75) <= 1 / 32
    np.testing.assert_array_equal(frame[..., 1], frame[..., 2])
    assert 255 * 0.23 < red_minus_green.max() <= 255 * 0.25 + 1
