"""Destroyed actions, and groups of trajectories, of the error-drift study.

Sec. "ACPC and Prediction-Error Change" in the paper. Everything depends on the seed and the anchors
alone, never on how a job is cut.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Int64

from acpc_server.errors import FailedPrecondition
from acpc_server.numerics import keyed_generator

_DOMAIN = b"acpc/controls/1\0"


def trajectory_groups(trajectories: Int64[np.ndarray, "n"], groups: int) -> Int64[np.ndarray, "n"]:
    """The group, 0 to ``groups - 1``, of each anchor; a trajectory lies in one group alone.

    Trajectories are dealt to the groups in turn, in the order in which they first appear. Raises
    FailedPrecondition: Fewer trajectories than groups.
    """
    _, first, inverse = np.unique(trajectories, return_index=True, return_inverse=True)
    if len(first) < groups:
        raise FailedPrecondition(
            f"the anchors come from {len(first)} trajectories, too few for {groups} groups; ask "
            "for fewer groups or for anchors of more trajectories",
            reason="TOO_FEW_TRAJECTORIES",
        )
    appearance = np.argsort(np.argsort(first))  # rank of each trajectory
    group: np.ndarray = appearance[inverse] % groups
    return group


def swapped_partners(trajectories: Int64[np.ndarray, "n"], seed: int) -> Int64[np.ndarray, "n"]:
    """For each anchor the anchor of another trajectory whose actions it is given.

    A permutation: every anchor gives its actions once. Anchors lie in random order, those of a
    trajectory side by side, and each takes from the one that lies the largest trajectory's size
    further on. Raises FailedPrecondition: More than half of the anchors share a trajectory.
    """
    n = len(trajectories)
    _, inverse, sizes = np.unique(trajectories, return_inverse=True, return_counts=True)
    largest = int(sizes.max())
    if 2 * largest > n:
        raise FailedPrecondition(
            f"{largest} of {n} anchors come from one trajectory, so their actions cannot be "
            "swapped for those of others; use one_per_episode, or more trajectories",
            reason="TOO_FEW_TRAJECTORIES",
        )
    generator = keyed_generator(_DOMAIN, {"seed": seed}, "swap")
    anchors, order = generator.permutation(n), generator.permutation(len(sizes))
    anchors = anchors[np.argsort(order[inverse[anchors]], kind="stable")]
    partners = np.empty(n, np.int64)
    partners[anchors] = np.roll(anchors, -largest)
    return partners


def shuffled_order(horizon: int, *, seed: int, anchor: int) -> Int64[np.ndarray, "horizon"]:
    """An order of an anchor's own ``horizon >= 2`` action blocks that is not the recorded one."""
    generator = keyed_generator(_DOMAIN, {"seed": seed, "anchor": anchor}, "shuffle")
    recorded = np.arange(horizon)
    order = recorded
    while np.array_equal(order, recorded):
        order = generator.permutation(horizon)
    return order


def destroyed_actions(
    blocks: Float32[np.ndarray, "n steps width"],
    anchor_ids: Int64[np.ndarray, "n"],
    partners: Int64[np.ndarray, "n"],
    rows: range,
    *,
    horizon: int,
    seed: int,
) -> Float32[np.ndarray, "m 4 steps width"]:
    """Recorded, zeroed, swapped and shuffled action blocks of anchors ``rows``.

    Only a_0..a_{H-1}, the last H blocks, are destroyed; those that leave earlier history frames are
    part of the history. Zeroed blocks are zero where the checkpoint acts, after normalisation: a
    block of mean actions, which is what "every action set to zero" can mean for any anchors, stored
    sets included.
    """
    every = np.repeat(blocks[rows.start : rows.stop, None], 4, axis=1)  # (m, 4, steps, width)
    future = every[:, :, -horizon:]  # a view
    future[:, 1] = 0
    future[:, 2] = blocks[partners[rows.start : rows.stop], -horizon:]
    for row, anchor in enumerate(anchor_ids[rows.start : rows.stop]):
        order = shuffled_order(horizon, seed=seed, anchor=int(anchor))
        future[row, 3] = future[row, 0, order]
    return every


def destroyed_windows(
    blocks: Float32[np.ndarray, "n window width"], rows: range, *, steps: int, seed: int
) -> Float32[np.ndarray, "m 4 steps width"]:
    """The same four as the released code has them: of whole windows, ``steps`` blocks are fed.

    Past blocks are destroyed too. One generator gives the permutation of the anchors, whose actions
    each is swapped for, and then an order of the window's blocks for every anchor; either may leave
    some in place. (The released code draws them again for each severity.)
    """
    n, window = blocks.shape[:2]
    generator = torch.Generator().manual_seed(seed)
    partners = torch.randperm(n, generator=generator).numpy()
    orders = [torch.randperm(window, generator=generator).numpy() for _ in range(n)]
    own = blocks[rows.start : rows.stop]
    shuffled = [blocks[row, orders[row]] for row in rows]
    every = np.stack(
        [own, np.zeros_like(own), blocks[partners[rows.start : rows.stop]], np.stack(shuffled)],
        axis=1,
    )
    fed: np.ndarray = every[:, :, :steps]
    return fed
