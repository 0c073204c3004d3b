"""Anchors of the two-room world, with views of their histories under every factor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from acpc.arrays import NDArray
from acpc_client import AnchorArrays
from acpc_lab.factors import rendered_views
from factors import FACTORS, render_factor
from world import FRAMESKIP, Floats, render, simulate

EPISODES, BLOCKS, SEED = 120, 24, 9101
HISTORY, HORIZON = 3, 8


def draw_anchors(count: int) -> tuple[AnchorArrays, Floats]:
    """One window of each of ``count`` episodes, and the positions in its history.

    Actions and states are standardised over all episodes; the label is the room of each endpoint.
    """
    log = simulate(EPISODES, BLOCKS, SEED)
    rng = np.random.default_rng(SEED)
    episode = rng.choice(EPISODES, count, replace=False)[:, None]
    frames = HISTORY + HORIZON
    start = rng.integers(BLOCKS - frames, size=(count, 1)) * FRAMESKIP
    positions = log.positions[episode, start + FRAMESKIP * np.arange(frames)]
    actions = log.actions[episode, start + np.arange((frames - 1) * FRAMESKIP)]
    logged = log.actions[:, :-1].reshape(-1, 2)
    actions = (actions - logged.mean(axis=0)) / logged.std(axis=0, ddof=1)
    ends = positions[:, HISTORY:]
    everywhere = log.positions.reshape(-1, 2)
    anchors = AnchorArrays(
        history=HISTORY,
        frames=render(positions),
        action_blocks=actions.reshape(count, frames - 1, -1).astype(np.float32),
        endpoint_states=(ends - everywhere.mean(axis=0)) / everywhere.std(axis=0, ddof=1),
        labels=(ends[..., 0] > 0.5).astype(np.int64),
        anchor_ids=np.arange(count),
    )
    return anchors, positions[:, :HISTORY]


def factor_views(
    anchors: AnchorArrays,
    positions: Floats,
    factors: Sequence[str] = tuple(FACTORS),
    *,
    levels: Sequence[float],
    draws: int,
) -> dict[str, NDArray[np.uint8]]:
    """A group of views for every factor and level."""
    return rendered_views(anchors, positions, render_factor, factors, levels=levels, draws=draws)
