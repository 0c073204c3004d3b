"""Plan with certificates: a CEM loop that refines its plan only as far as sensor noise allows.

    python examples/planner_loop.py

Starts a real server on the checkpoints in examples/two_room and steers an agent there. The camera
is noisy. At each step a CEM loop asks the server for the costs of its pool, and, in the same
answer, whether noise of the camera's strength could change which candidate wins:

- certified: the loop refines its pool around the elites and continues;
- denied: it stops refining and keeps the winner of the last certified iteration;
- denied from the first iteration on: it falls back to the rest of its previous plan; where there is
  none, the agent does not move and the loop starts again with a new frame.

The table compares that with a planner that ignores certificates and always refines to the end.

What it shows, with the defaults: for the model trained with noise about half of the choices are
certified, and the planner steers with them; for the one trained on clean frames next to none are,
so that a planner which insists on certificates does not move. What it does not show: that certified
plans are better. The planner that ignores certificates gets about as close, because it plans from a
new frame at every step and corrects what noise has done. A certificate is a statement about one
choice: none of the drawn views would have changed it in this pool. It says nothing about errors of
the model, noise that was not drawn, or the next pool.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from acpc_client import AcpcClient, GaussianNoise, PlanSession
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from server_process import WORLD, running_server

sys.path.insert(0, str(WORLD))

from world import FRAMESKIP, SPEED, render, simulate, step

CHECKPOINTS = ("two-room-base", "two-room-augmented")
HORIZON, CANDIDATES, ELITES, ITERATIONS, DRAWS = 3, 48, 8, 3, 4
ARRIVED, LAST_STEP = 0.06, 8
Floats = NDArray[np.float64]


@dataclass
class Tally:
    """What happened in all episodes of one planner."""

    steps: int = 0
    iterations: int = 0
    certified: int = 0
    fallbacks: int = 0
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


class ActionScale:
    """The world's actions and the model's: normalised by the training data's statistics."""

    def __init__(self) -> None:
        logged = simulate(120, 24, 9101).actions[:, :-1].reshape(-1, 2)
        self._mean, self._std = logged.mean(axis=0), logged.std(axis=0, ddof=1)

    def to_blocks(self, actions: Floats) -> NDArray[np.float32]:
        """Model input (..., H, block width) of actions (..., H, 2), each held for a block."""
        scaled = (actions - self._mean) / self._std
        return np.tile(scaled, FRAMESKIP).astype(np.float32)


@dataclass(frozen=True)
class Planner:
    """CEM over one action per block.

    Attributes:
        gated: Whether a denied certificate ends the refinement.
    """

    session: PlanSession
    scale: ActionScale
    rng: np.random.Generator
    gated: bool

    def plan(self, tally: Tally) -> Floats | None:
        """The plan (H, 2), or None where not even the first choice is certified."""
        mean, std = np.zeros((HORIZON, 2)), np.full((HORIZON, 2), 0.7)
        best = None
        for _ in range(ITERATIONS):
            noise = self.rng.standard_normal((CANDIDATES, HORIZON, 2))
            pool = np.clip(mean + std * noise, -1.0, 1.0)
            answer = self.session.certify(self.scale.to_blocks(pool))
            certified = all(view.top1.certified for view in answer.views)
            tally.iterations += 1
            tally.certified += certified
            if self.gated and not certified:
                break
            best = pool[answer.clean_winner]
            elites = pool[list(answer.clean_elites)]
            mean, std = elites.mean(axis=0), elites.std(axis=0)
        return best


def episode(
    client: AcpcClient, checkpoint: str, scale: ActionScale, sigma: float, seed: int, gated: bool,
    tally: Tally,
) -> None:  # fmt: skip
    """Steers from a random start to a random goal in the same room."""
    rng = np.random.default_rng(seed)
    position, goal = endpoints(rng)
    camera = Camera(sigma, seed)
    goal_frame = render(goal[None])[0]
    previous: Floats = np.empty((0, 2))
    for number in range(LAST_STEP):
        if np.linalg.norm(position - goal) < ARRIVED:
            break
        with client.plan(
            checkpoint,
            camera.look(position)[None],
            goal_frame,
            perturbations=GaussianNoise(sigma),
            draws=DRAWS,
            seed=seed,
            anchor=number,
            elite_count=ELITES,
        ) as session:
            plan = Planner(session, scale, rng, gated).plan(tally)
        if plan is None:
            tally.fallbacks += 1
            plan = previous if len(previous) else np.zeros((1, 2))
        for _ in range(FRAMESKIP):
            position = step(position[None], plan[:1])[0]
        previous = plan[1:]
        tally.steps += 1
    tally.distances.append(float(np.linalg.norm(position - goal)))


def endpoints(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Start and goal in the left room, at least two blocks of walking apart."""
    while True:
        start, goal = rng.uniform((0.06, 0.06), (0.42, 0.94), size=(2, 2))
        if np.linalg.norm(start - goal) > 2 * FRAMESKIP * SPEED:
            return start, goal


def report(tallies: dict[tuple[str, str], Tally], sigma: float, console: Console) -> None:
    """One row per checkpoint and planner."""
    table = Table(title=f"Planning through camera noise of sigma {sigma}")
    for column in ("checkpoint", "planner", "steps", "certified", "fallbacks", "left", "largest"):
        words = column in ("checkpoint", "planner")
        table.add_column(column, justify="left" if words else "right", no_wrap=words)
    for (checkpoint, planner), tally in tallies.items():
        table.add_row(
            checkpoint.removeprefix("two-room-"),
            planner,
            str(tally.steps),
            f"{tally.certified}/{tally.iterations}",
            f"{tally.fallbacks}/{tally.steps}",
            f"{np.median(tally.distances):.3f}",
            f"{max(tally.distances):.3f}",
        )
    console.print(table)
    console.print(
        f"certified: CEM iterations whose winner provably stays the winner in all {DRAWS} views.\n"
        "fallbacks: steps without a certified choice.\n"
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
    scale = ActionScale()
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
                for gated in (True, False):
                    planner = "asks" if gated else "never asks"
                    tally = tallies[checkpoint, planner] = Tally()
                    for seed in range(args.seed, args.seed + args.episodes):
                        episode(client, checkpoint, scale, args.sigma, seed, gated, tally)
    report(tallies, args.sigma, console)


if __name__ == "__main__":
    main()
