"""The two-room world as a closed loop: a CEM planner steers the agent through a served checkpoint.

Evaluated as the public library does: start and goal are two positions of a logged episode, 25
environment steps apart. The planner sees one frame, through the shift, plans five blocks of five
steps with the paper's reduced CEM budget, and acts on all of them; then it looks again. An episode
succeeds when the agent comes within ``ARRIVED`` of the goal in 50 steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from acpc.arrays import NDArray
from acpc_client import AcpcClient, CheckpointRef, Perturbation
from world import ARRIVED, FRAMESKIP, render, simulate, step

Floats = NDArray[np.float64]

GOAL_STEPS, PLANS = 25, 2
CANDIDATES, ELITES, ITERATIONS, HORIZON = 64, 8, 8, 5
WIDTH = FRAMESKIP * 2
THREADS = 4  # episodes whose pools the server may put into one batch


class TwoRooms:
    """A world in which a planner acts through a served checkpoint.

    The shift is drawn by the server, from the evaluation seed, the episode and the plan.
    """

    def __init__(self, client: AcpcClient, world_seed: int = 9101) -> None:
        self._client = client
        self._world_seed = world_seed
        logged = simulate(120, 24, world_seed).actions[:, :-1].reshape(-1, 2)
        self._mean, self._std = logged.mean(axis=0), logged.std(axis=0, ddof=1)

    def evaluate(
        self, checkpoint: CheckpointRef, shift: Perturbation, seeds: Sequence[int], episodes: int
    ) -> list[int]:
        """How many of the episodes of each seed reach the goal."""
        found = [self._successes(checkpoint, shift, seed, episodes) for seed in seeds]
        print(f"{checkpoint.name}, {shift}: {sum(found)} of {len(seeds) * episodes}", flush=True)
        return found

    def _successes(
        self, checkpoint: CheckpointRef, shift: Perturbation, seed: int, episodes: int
    ) -> int:
        log = simulate(episodes, GOAL_STEPS // FRAMESKIP + 1, 1000 * self._world_seed + seed)

        def reached(episode: int) -> bool:
            position, goal = log.positions[episode, [0, GOAL_STEPS]]
            for plan in range(PLANS):
                draw = seed, episode * PLANS + plan
                for action in self._plan(checkpoint, shift, position, goal, draw):
                    position = step(position[None], action[None])[0]
                    if np.linalg.norm(position - goal) < ARRIVED:
                        return True
            return False

        with ThreadPoolExecutor(THREADS) as threads:
            return sum(threads.map(reached, range(episodes)))

    def _plan(
        self,
        checkpoint: CheckpointRef,
        shift: Perturbation,
        position: Floats,
        goal: Floats,
        draw: tuple[int, int],
    ) -> Floats:
        """The actions (25, 2) that CEM chooses from one shifted frame."""
        seed, number = draw
        mean, std = np.zeros((HORIZON, WIDTH), np.float32), np.ones((HORIZON, WIDTH), np.float32)
        with self._client.plan(
            checkpoint,
            render(position[None]),
            render(goal[None])[0],
            perturbations=shift,
            draws=1,
            seed=seed,
            anchor=number,
            message_timeout=300.0,  # nobody waits for a single plan
        ) as session:
            for iteration in range(ITERATIONS):
                sample = (1000 * seed + number) * ITERATIONS + iteration
                pool = session.certify_proposal(mean, std, candidates=CANDIDATES, seed=sample)
                costs = pool.certificate.views[0].perturbed_costs
                elites = pool.candidates[np.argsort(costs, kind="stable")[:ELITES]]
                mean, std = elites.mean(axis=0), elites.std(axis=0, ddof=1)
        actions: Floats = mean.reshape(-1, 2) * self._std + self._mean
        return actions
