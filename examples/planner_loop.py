"""Plan with certificates: what a CEM planner does when one is denied.

    python examples/planner_loop.py

Starts a real server on the checkpoints in examples/two_room and steers an agent there. The camera
is noisy. At each step a planner has the server cost its pools, and learns in the same answers
whether noise of the camera's strength could change which candidate wins. Then it takes

- accept: the winner of its last pool, where no drawn view can change it;
- earlier: else the winner of the narrowest earlier pool of this plan that was certified, which is a
  coarser plan;
- brake: else the rest of the plan before; where there is none, it stands still and looks again.

The model trained with noise has a certified choice at most steps, nearly all of them from an
earlier pool; the one trained on clean frames has next to none, so that its planner hardly moves:
take another checkpoint, not another rule. A certificate does not say that the choice is good:
docs/certificates.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from acpc_client import AcpcClient, GaussianNoise, PlanSession, ViewOptions
from server_process import WORLD, running_server

sys.path.insert(0, str(WORLD))

from held_actions import Blocks, HeldActions
from world import FRAMESKIP, SPEED, Floats, render, step

CHECKPOINTS = ("two-room-base", "two-room-augmented")
DECISIONS = ("accept", "earlier", "brake")
DRAWS, ARRIVED, LAST_STEP = 4, 0.06, 8


def chosen(
    session: PlanSession, held: HeldActions, rng: np.random.Generator
) -> tuple[str, Blocks | None]:
    """What is decided, and the plan that no drawn view changes; None: there is none."""
    found: Blocks | None = None
    pools = held.pools(rng)
    pool: Blocks | None = next(pools)
    certified = False
    while pool is not None:
        answer = session.certify(pool)
        certified = all(view.top1.certified for view in answer.views)
        found = pool[answer.clean_winner] if certified else found
        try:
            pool = pools.send(answer)
        except StopIteration:
            pool = None
    return "accept" if certified else "brake" if found is None else "earlier", found


def episode(
    client: AcpcClient, checkpoint: str, held: HeldActions, sigma: float, seed: int
) -> tuple[Counter[str], float]:
    """Steers from a random start to a random goal in the same room; the distance that is left."""
    rng = np.random.default_rng(seed)
    position, goal = endpoints(rng)
    goal_frame, decided = render(goal[None])[0], Counter[str]()

    def look() -> np.ndarray:
        frame = render(position[None]) + 255.0 * sigma * rng.standard_normal((1, 32, 32, 3))
        return np.rint(np.clip(frame, 0.0, 255.0)).astype(np.uint8)

    view: ViewOptions = {"perturbations": GaussianNoise(sigma), "draws": DRAWS, "seed": seed}
    rest: Floats = np.empty((0, 2))  # of the plan before
    with client.plan(checkpoint, look(), goal_frame, **view) as session:
        for number in range(LAST_STEP):
            if np.linalg.norm(position - goal) < ARRIVED:
                break
            view["anchor"] = number
            if number:
                session.restart(checkpoint, look(), goal_frame, **view)
            decision, plan = chosen(session, held, rng)
            decided[decision] += 1
            if plan is not None:
                rest = held.of(plan)
            action, rest = (rest[:1], rest[1:]) if len(rest) else (np.zeros((1, 2)), rest)
            for _ in range(FRAMESKIP):
                position = step(position[None], action)[0]
    return decided, float(np.linalg.norm(position - goal))


def endpoints(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Start and goal in the left room, at least two blocks of walking apart."""
    while True:
        start, goal = rng.uniform((0.06, 0.06), (0.42, 0.94), size=(2, 2))
        if np.linalg.norm(start - goal) > 2 * FRAMESKIP * SPEED:
            return start, goal


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sigma", type=float, default=0.02, help="noise, default: %(default)s")
    parser.add_argument("--episodes", type=int, default=6, help="default: %(default)s")
    args = parser.parse_args()
    held = HeldActions()
    with tempfile.TemporaryDirectory() as folder:
        datasets = Path(folder, "datasets")
        datasets.mkdir()
        with (
            running_server(WORLD / "checkpoints", datasets, Path(folder, "state")) as address,
            AcpcClient(address) as client,
        ):
            for checkpoint in CHECKPOINTS:
                found = [
                    episode(client, checkpoint, held, args.sigma, seed)
                    for seed in range(args.episodes)
                ]
                counts = sum((decided for decided, _ in found), Counter[str]())
                words = ", ".join(f"{counts[name]} {name}" for name in DECISIONS)
                left = float(np.median([distance for _, distance in found]))
                print(f"{checkpoint}: {words}; median distance to the goal {left:.3f}", flush=True)


if __name__ == "__main__":
    main()
