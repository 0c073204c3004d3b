"""Plan with certificates: a CEM planner that acts on what sensor noise cannot change.

    python examples/planner_loop.py

Starts a real server on the checkpoints in examples/two_room and steers an agent there. The camera
is noisy. At each step a CEM planner has the server cost its pools, and is told, in the same
answers, whether noise of the camera's strength could change which candidate wins. A policy
(acpc_client.Policy) decides what to do with that:

- certified: the agent acts on the winner;
- denied: the policy asks again without the candidates that begin as the winner does (shrink), then
  falls back to an earlier pool of the plan whose winner was certified (earlier);
- still denied: it brakes. The agent goes on with the rest of its previous plan; where there is
  none, it does not move and looks again.

The table compares that with a planner that ignores certificates and acts on every winner.

What it shows, with the defaults: the model trained with noise has a certified choice at most
control steps, nearly all of them through a remedy, and the planner steers with them; the one
trained on clean frames has next to none, so that a planner which insists on certificates does not
move. What it does not show: that certified plans are better. The planner that ignores certificates
gets about as close, because it plans from a new frame at every step and corrects what noise has
done. docs/certificates.md says what a certificate means, and has more episodes, cameras, remedies.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc_client import AcpcClient, Decision, GaussianNoise, PlanSession, Policy
from rich.console import Console
from rich.table import Table
from server_process import WORLD, running_server

sys.path.insert(0, str(WORLD))

from held_actions import HeldActions
from world import FRAMESKIP, SPEED, Floats, render, step

CHECKPOINTS = ("two-room-base", "two-room-augmented")
DRAWS = 4
SAME_ACTION = 0.2  # of the agent's full speed
ARRIVED, LAST_STEP = 0.06, 8
REMEDIES = (Decision.SHRINK, Decision.EARLIER)


@dataclass
class Tally:
    """What happened in all episodes of one planner."""

    decided: Counter[Decision] = field(default_factory=Counter)
    distances: list[float] = field(default_factory=list)


class Camera:
    """Sees the world through Gaussian noise of one strength, as 8-bit frames."""

    def __init__(self, sigma: float, seed: int) -> None:
        self._sigma = sigma
        self._rng = np.random.default_rng(seed)

    def look(self, position: Floats) -> NDArray[np.uint8]:
        """The frame (32, 32, 3) of a position (2,)."""
        frame = render(position[None])[0]
        noise = 255.0 * self._sigma * self._rng.standard_normal(frame.shape)
        return np.rint(np.clip(frame + noise, 0.0, 255.0)).astype(np.uint8)


def episode(
    client: AcpcClient, checkpoint: str, held: HeldActions, sigma: float, seed: int, asks: bool,
    tally: Tally,
) -> None:  # fmt: skip
    """Steers from a random start to a random goal in the same room."""
    rng = np.random.default_rng(seed)
    position, goal = endpoints(rng)
    camera = Camera(sigma, seed)
    goal_frame = render(goal[None])[0]
    policy = Policy(
        REMEDIES if asks else (),
        budget_ms=10_000,  # an example's: a robot's is its control period
        acted=lambda pool: held.of(pool[:, 0]),
        same_action=SAME_ACTION,
    )
    rest: Floats = np.empty((0, 2))  # of the previous plan
    for number in range(LAST_STEP):
        if np.linalg.norm(position - goal) < ARRIVED:
            break

        def look(frame: NDArray[np.uint8], **options: Any) -> PlanSession:  # noqa: ANN401
            view = {"perturbations": GaussianNoise(sigma), "draws": DRAWS, "seed": seed}
            view["anchor"] = number  # noqa: B023 - called before the loop goes on
            return client.plan(checkpoint, frame, goal_frame, **{**view, **options})

        frame = camera.look(position)[None]
        decided = policy.step(lambda frame=frame: frame, look, lambda: held.pools(rng))
        plan = decided.plan
        if not asks and decided.pool is not None and decided.certificate is not None:
            plan = decided.pool[decided.certificate.clean_winner]
        if plan is not None:
            rest = held.of(plan)
        action, rest = (rest[:1], rest[1:]) if len(rest) else (np.zeros((1, 2)), rest)
        for _ in range(FRAMESKIP):
            position = step(position[None], action)[0]
    tally.decided += policy.decided
    tally.distances.append(float(np.linalg.norm(position - goal)))


def endpoints(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Start and goal in the left room, at least two blocks of walking apart."""
    while True:
        start, goal = rng.uniform((0.06, 0.06), (0.42, 0.94), size=(2, 2))
        if np.linalg.norm(start - goal) > 2 * FRAMESKIP * SPEED:
            return start, goal


def report(tallies: dict[tuple[str, str], Tally], sigma: float, console: Console) -> None:
    """One row per checkpoint and planner."""
    table = Table(title=f"Planning through camera noise of sigma {sigma}", box=None)
    counted = (Decision.ACCEPT, *REMEDIES, Decision.BRAKE)
    for column in ("checkpoint", "planner", "steps", *counted, "left", "largest"):
        words = column in ("checkpoint", "planner")
        table.add_column(column, justify="left" if words else "right", no_wrap=words)
    for (checkpoint, planner), tally in tallies.items():
        table.add_row(
            checkpoint.removeprefix("two-room-"),
            planner,
            str(tally.decided.total()),
            *(str(tally.decided[decision]) for decision in counted),
            f"{np.median(tally.distances):.3f}",
            f"{max(tally.distances):.3f}",
        )
    console.print(table)
    console.print(
        f"accept: control steps whose winner provably stays the winner in all {DRAWS} views;\n"
        "shrink, earlier: those that a remedy certified;\n"
        "brake: those without a certified choice, which the planner that never asks\n"
        "acts on all the same.\n"
        "left, largest: median and largest distance to the goal at the end of an episode;\n"
        f"the room is 1 high, and below {ARRIVED} is arrived."
    )


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sigma", type=float, default=0.02, help="noise, default: %(default)s")
    parser.add_argument("--episodes", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first, default: %(default)s")
    args = parser.parse_args()
    console = Console()
    held = HeldActions()
    tallies: dict[tuple[str, str], Tally] = {}
    with tempfile.TemporaryDirectory() as folder:
        datasets = Path(folder, "datasets")
        datasets.mkdir()
        with (
            running_server(WORLD / "checkpoints", datasets, Path(folder, "state")) as address,
            AcpcClient(address) as client,
            console.status("Planning"),
        ):
            for checkpoint in CHECKPOINTS:
                for asks in (True, False):
                    planner = "asks" if asks else "never asks"
                    tally = tallies[checkpoint, planner] = Tally()
                    for seed in range(args.seed, args.seed + args.episodes):
                        episode(client, checkpoint, held, args.sigma, seed, asks, tally)
    report(tallies, args.sigma, console)


if __name__ == "__main__":
    main()
