"""Destroyed actions and trajectory groups: laws that hold whatever the anchors and the seed."""

import numpy as np
import pytest
from acpc_server.errors import FailedPrecondition
from acpc_server.studies.drift import (
    destroyed_actions,
    shuffled_order,
    swapped_partners,
    trajectory_groups,
)
from hypothesis import given
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**64 - 1)


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=12), seed=SEEDS)
def test_every_anchor_swaps_with_another_trajectory_and_gives_once(
    sizes: list[int], seed: int
) -> None:
    labels = [7 * index for index, size in enumerate(sizes) for _ in range(size)]
    trajectories = np.random.default_rng(seed % 2**32).permutation(np.array(labels))
    if 2 * max(sizes) > len(labels):
        with pytest.raises(FailedPrecondition, match=rf"{max(sizes)} of {len(labels)} anchors"):
            swapped_partners(trajectories, seed)
        return
    partners = swapped_partners(trajectories, seed)
    assert sorted(partners.tolist()) == list(range(len(labels)))
    assert (trajectories[partners] != trajectories).all()
    assert np.array_equal(partners, swapped_partners(trajectories, seed))


def test_swaps_depend_on_the_seed() -> None:
    trajectories = np.arange(30)
    drawn = {tuple(swapped_partners(trajectories, seed)) for seed in range(20)}
    assert len(drawn) == 20


@given(horizon=st.integers(2, 12), seed=SEEDS, anchor=st.integers(0, 2**63))
def test_a_shuffle_is_a_permutation_that_moves_something(
    horizon: int, seed: int, anchor: int
) -> None:
    order = shuffled_order(horizon, seed=seed, anchor=anchor)
    assert sorted(order.tolist()) == list(range(horizon))
    assert order.tolist() != list(range(horizon))
    assert np.array_equal(order, shuffled_order(horizon, seed=seed, anchor=anchor))


def test_shuffles_reach_every_other_order() -> None:
    found = {tuple(shuffled_order(3, seed=0, anchor=anchor)) for anchor in range(200)}
    assert len(found) == 5


@given(trajectories=st.lists(st.integers(0, 40), min_size=1, max_size=60), groups=st.integers(1, 8))
def test_groups_are_disjoint_even_and_by_first_appearance(
    trajectories: list[int], groups: int
) -> None:
    distinct = list(dict.fromkeys(trajectories))
    if len(distinct) < groups:
        with pytest.raises(FailedPrecondition, match=f"{len(distinct)} trajectories"):
            trajectory_groups(np.array(trajectories), groups)
        return
    found = trajectory_groups(np.array(trajectories), groups).tolist()
    assert found == [distinct.index(t) % groups for t in trajectories]
    assert set(found) == set(range(groups))


def test_only_the_future_is_destroyed() -> None:
    """Past blocks, which belong to the history, stay under every control."""
    generator = np.random.default_rng(0)
    blocks = generator.standard_normal((6, 5, 2)).astype(np.float32)  # h = 3, H = 3
    ids, partners = np.arange(10, 16), swapped_partners(np.arange(6), 4)
    found = destroyed_actions(blocks, ids, partners, range(2, 5), horizon=3, seed=4)
    assert found.shape == (3, 4, 5, 2)
    for row, anchor in enumerate(range(2, 5)):
        recorded, zeroed, swapped, shuffled = found[row]
        assert (found[row, :, :2] == blocks[anchor, :2]).all()
        assert (recorded == blocks[anchor]).all()
        assert (zeroed[2:] == 0).all()
        assert (swapped[2:] == blocks[partners[anchor], 2:]).all()
        order = shuffled_order(3, seed=4, anchor=10 + anchor)
        assert (shuffled[2:] == blocks[anchor, 2:][order]).all()
    assert (blocks[2:5] == found[:, 0]).all(), "the anchors' own blocks are not written to"
