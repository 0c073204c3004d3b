"""CEM in the two-room world over one action a block, which is held for the block's five steps."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from acpc.arrays import NDArray
from acpc_client import PoolCertificate
from world import FRAMESKIP, Floats, simulate

HORIZON, CANDIDATES, ELITES, ITERATIONS, SPREAD = 3, 48, 8, 3, 0.7
Blocks = NDArray[np.float32]


class HeldActions:
    """Between the world's actions and the model's, normalised by the data that it learnt from."""

    def __init__(self) -> None:
        logged = simulate(120, 24, 9101).actions[:, :-1].reshape(-1, 2)
        self._mean, self._std = logged.mean(axis=0), logged.std(axis=0, ddof=1)

    def to_blocks(self, actions: Floats) -> Blocks:
        """Model input (..., H, block width) of actions (..., H, 2)."""
        return np.tile((actions - self._mean) / self._std, FRAMESKIP).astype(np.float32)

    def of(self, blocks: Blocks) -> Floats:
        """Actions (..., 2) of blocks (..., block width), which hold one each."""
        actions: Floats = blocks[..., :2] * self._std + self._mean
        return actions

    def pools(
        self, rng: np.random.Generator, candidates: int = CANDIDATES, elites: int = ELITES
    ) -> Generator[Blocks, PoolCertificate, None]:
        """The pools of one plan, each around the elite set of the one before."""
        mean, std = np.zeros((HORIZON, 2)), np.full((HORIZON, 2), SPREAD)
        for _ in range(ITERATIONS):
            actions = mean + std * rng.standard_normal((candidates, HORIZON, 2))
            actions[0] = mean
            actions = np.clip(actions, -1.0, 1.0)
            answer = yield self.to_blocks(actions)
            best = actions[np.argsort(answer.clean_costs, kind="stable")[:elites]]
            mean, std = best.mean(axis=0), best.std(axis=0, ddof=1)
