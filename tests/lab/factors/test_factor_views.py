"""Groups of views by factor and level: what is rendered, and from which random numbers."""

import importlib.util
from importlib.metadata import distribution
from typing import Any

import numpy as np
import pytest
from acpc.arrays import NDArray
from acpc_client import AnchorArrays
from acpc_client.errors import ArgumentError
from acpc_lab.factors import environment_renderer, factor_of, group_of, rendered_views
from public_library import public_module

HISTORY, SIDE = 3, 4


def render(
    states: NDArray[Any], factor: str, level: float, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """The state's grey, and a random one mixed in by the level."""
    grey = np.broadcast_to(states[:, :, None, None], (len(states), SIDE, SIDE, 3))
    return ((1 - level) * grey + level * rng.integers(256, size=3)).astype(np.uint8)


def anchors(states: NDArray[Any]) -> AnchorArrays:
    count = len(states)
    frames = np.stack([render(row, "", 0.0, np.random.default_rng()) for row in states])
    return AnchorArrays(
        history=HISTORY,
        frames=np.concatenate([frames, frames], axis=1),
        action_blocks=np.zeros((count, 2 * HISTORY - 1, 2), np.float32),
        endpoint_states=np.zeros((count, 1)),
        labels=np.zeros(count, np.int64),
        anchor_ids=np.arange(10, 10 + count),
    )


@pytest.fixture
def states() -> NDArray[Any]:
    return np.random.default_rng(0).integers(256, size=(5, HISTORY, 1))


def test_every_factor_and_level_is_a_group_of_views(states: NDArray[Any]) -> None:
    views = rendered_views(anchors(states), states, render, ["light", "hue"], draws=2)
    assert list(views) == [
        "light:0.3333", "light:0.6667", "light:1", "hue:0.3333", "hue:0.6667", "hue:1",
    ]  # fmt: skip
    assert {(found.shape, found.dtype) for found in views.values()} == {
        ((5, 2, HISTORY, SIDE, SIDE, 3), np.dtype(np.uint8))
    }
    assert not np.array_equal(views["light:1"], views["hue:1"])


def test_a_view_depends_on_seed_anchor_factor_and_number_and_not_on_the_level(
    states: NDArray[Any],
) -> None:
    whole = rendered_views(anchors(states), states, render, ["light"], levels=(0.5, 1), draws=3)
    strong = whole["light:1"]
    assert len(np.unique(strong.reshape(15, -1), axis=0)) == 15  # by anchor and draw
    assert np.array_equal(strong[:, :, 0], strong[:, :, 1])  # one change for a history
    again = rendered_views(anchors(states), states, render, ["light"], levels=(1,), draws=2)
    assert np.array_equal(again["light:1"], strong[:, :2])
    half = (0.5 * states[:, None, :, None, None] + 0.5 * strong).astype(np.uint8)
    np.testing.assert_allclose(whole["light:0.5"].astype(int), half, atol=1)
    other = rendered_views(anchors(states), states, render, ["light"], levels=(1,), seed=1)
    assert not np.array_equal(other["light:1"][:, :2], strong[:, :2])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"states": np.zeros((5, 2, 1))}, r"states: found the shape \(5, 2, 1\), wanted \(5, 3"),
        ({"states": np.full((5, 3, 1), 999)}, r"the first history .* at level 0 is \d+\.\d"),
        ({"factors": ["a:b"]}, "factors: found 'a:b'"),
        ({"levels": [1.5]}, r"levels: found 1\.5, wanted a number in"),
        ({"render": lambda *_: np.zeros((3, 2, 2, 3), np.uint8)}, r"gave uint8 \(3, 2, 2, 3\)"),
    ],
)
def test_what_cannot_be_rendered_is_told(
    states: NDArray[Any], change: dict[str, Any], told: str
) -> None:
    given: dict[str, Any] = {"states": states, "render": render, "factors": ["light"], **change}
    with pytest.raises(ArgumentError, match=told):
        rendered_views(anchors(states), **given)


def test_a_groups_name_tells_its_factor_and_level() -> None:
    for factor, level in (("agent.color", 1 / 3), ("light", 0), ("x", 1e-4)):
        found = factor_of(group_of(factor, level))
        assert found == (factor, pytest.approx(level, rel=1e-3))
    for group in ("second-camera", "a:b:1", "light:", "light:1e", ":1"):
        assert factor_of(group) is None


@pytest.fixture(scope="module")
def two_room() -> Any:  # noqa: ANN401 - an environment of the public library
    public_module("utils")
    public_module("spaces")
    path = distribution("stable-worldmodel").locate_file("stable_worldmodel/envs/two_room/env.py")
    spec = importlib.util.spec_from_file_location("public_two_room", str(path))
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TwoRoomEnv()


def test_an_environment_of_the_public_library_renders_states_under_its_variations(
    two_room: Any,  # noqa: ANN401
) -> None:
    states = np.array([[40.0, 60.0], [50.0, 60.0], [180.0, 150.0]], np.float32)
    shown = environment_renderer(two_room)

    def seen(factor: str, level: float) -> NDArray[Any]:
        return shown(states, factor, level, np.random.default_rng(1)).astype(int)

    plain = seen("agent.color", 0.0)
    assert np.array_equal(plain, seen("wall.thickness", 0.0))
    for row, (x, y) in enumerate(states.astype(int)):
        assert plain[row, y, x, 0] > plain[row, y, x, 1] + 100  # the red agent
    for factor in ("agent.color", "wall.color", "wall.thickness", "background.color"):
        apart = [np.abs(seen(factor, level) - plain).mean() for level in (0.0, 0.5, 1.0)]
        assert apart[0] == 0 < apart[1] <= apart[2]
        assert np.array_equal(seen(factor, 1.0), seen(factor, 1.0))
    with pytest.raises(ArgumentError, match=r"found 'agent.hat', wanted one of agent.color, "):
        seen("agent.hat", 1.0)


def test_a_state_that_reset_does_not_take_is_placed(two_room: Any) -> None:  # noqa: ANN401
    states = np.array([[40.0, 60.0], [180.0, 150.0]], np.float32)
    placed = []

    def place(environment: Any, state: NDArray[Any]) -> None:  # noqa: ANN401
        placed.append(state.tolist())
        environment.agent_position = environment.agent_position.new_tensor(state)

    rng = np.random.default_rng(1)
    shown = environment_renderer(two_room, place)(states, "wall.color", 0.5, rng)
    assert placed == states.tolist()
    again = environment_renderer(two_room)(states, "wall.color", 0.5, np.random.default_rng(1))
    assert np.array_equal(shown, again)
