"""Train the demonstration's checkpoints on the two-room world, one after another.

    python examples/two_room/train.py           those of the demos
    python examples/two_room/train.py --sweep   every augmentation level, two runs each

Each checkpoint is a LeWM of 157 thousand parameters and takes under a minute on one thread. The
same seed on the same machine and number of threads gives the same weights.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from acpc_server.models import JepaModel
from acpc_server.numerics.pixels import IMAGENET_STD, to_model_input
from model import HISTORY, build, save
from rich.console import Console
from rich.progress import Progress
from torch import Tensor
from world import FRAMESKIP, render, simulate

EPISODES, PROBE_EPISODES, BLOCKS = 500, 120, 24
STEPS, BATCH = 600, 64
LEARNING_RATE, WEIGHT_DECAY, CLIP = 1e-3, 1e-3, 1.0
# Gradients shrink by orders of magnitude while latents collapse. With torch's defaults the second
# moment and epsilon freeze the encoder there, before it has learned to see through noise.
BETAS, EPSILON = (0.9, 0.95), 1e-12
WARM_UP, LAST_RATE = 0.05, 0.02
WORLD_SEED, PROBE_SEED = 17, 18


@dataclass(frozen=True)
class Recipe:
    """How one checkpoint differs from the others.

    Attributes:
        sigreg_weight: Weight of the anti-collapse term; 0 lets the latents collapse.
        sigma_max: Largest std of the Gaussian pixel noise in training, in [0, 1] pixel units.
    """

    sigreg_weight: float
    sigma_max: float


RECIPES = {
    "two-room-base": Recipe(sigreg_weight=0.025, sigma_max=0.0),
    "two-room-augmented": Recipe(sigreg_weight=0.025, sigma_max=0.16),
    "two-room-collapsed": Recipe(sigreg_weight=0.0, sigma_max=0.16),
}
SWEEP_LEVELS = (0.0, 0.02, 0.04, 0.08, 0.16)
SWEEP_RUNS = (0, 1)


class Windows:
    """Draws training windows of ``HISTORY + 1`` frames, ``FRAMESKIP`` steps apart.

    Any environment step may start a window. Frames are drawn when asked for, so only positions
    and actions are kept. The world is the same for every ``seed``, which only orders the windows.
    """

    def __init__(self, episodes: int, seed: int) -> None:
        log = simulate(episodes, BLOCKS, WORLD_SEED)
        rows = log.actions[:, :-1].reshape(-1, 2)  # each episode's last row is NaN
        self.positions = log.positions
        self.actions = (log.actions - rows.mean(axis=0)) / rows.std(axis=0, ddof=1)
        self.rng = np.random.default_rng(seed)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Normalised frames (count, 4, 3, 32, 32) and action blocks (count, 3, 10)."""
        episodes, length = self.positions.shape[:2]
        episode = self.rng.integers(episodes, size=(count, 1))
        start = self.rng.integers(length - HISTORY * FRAMESKIP, size=(count, 1))
        frame_rows = start + FRAMESKIP * np.arange(HISTORY + 1)
        action_rows = start + np.arange(HISTORY * FRAMESKIP)
        frames = torch.from_numpy(render(self.positions[episode, frame_rows]))
        blocks = torch.from_numpy(self.actions[episode, action_rows]).float()
        size = frames.shape[2]
        return (
            to_model_input(frames.flatten(0, 1), size).reshape(count, HISTORY + 1, 3, size, size),
            blocks.reshape(count, HISTORY, -1),
        )


def sigreg(latents: Tensor, projections: int = 48, knots: int = 17) -> Tensor:
    """Distance of the latents from a standard Gaussian (SIGReg).

    The Epps-Pulley statistic compares the empirical characteristic function with that of the
    standard normal on random one-dimensional projections, by the trapezium rule on [0, 3]
    (doubled: the integrand is even). It grows with the batch.

    Args:
        latents: (batch, time, dim); each time step is one sample of ``batch`` points.
        projections: Random directions, drawn anew at each call.
        knots: Points of the quadrature.
    """
    t = torch.linspace(0.0, 3.0, knots)
    normal = torch.exp(-t.square() / 2)
    weight = torch.full((knots,), 2 * 3.0 / (knots - 1))
    weight[[0, -1]] /= 2
    directions = torch.randn(latents.shape[-1], projections)
    directions = directions / directions.norm(dim=0)
    angles = (latents @ directions).unsqueeze(-1) * t  # (batch, time, projections, knots)
    gap = (angles.cos().mean(0) - normal).square() + angles.sin().mean(0).square()
    statistic: Tensor = latents.shape[0] * (gap @ (weight * normal))
    return statistic.mean()


def add_noise(frames: Tensor, sigma_max: float) -> Tensor:
    """Add Gaussian pixel noise of std ~ U(0, ``sigma_max``) per frame, unclipped.

    Args:
        frames: (batch, time, 3, height, width), normalised.
        sigma_max: Largest std, in [0, 1] pixel units.
    """
    sigma = sigma_max * torch.rand(*frames.shape[:2], 1, 1, 1)
    return frames + torch.randn_like(frames) * sigma / torch.tensor(IMAGENET_STD).view(3, 1, 1)


def train(recipe: Recipe, *, seed: int, steps: int, episodes: int, progress: Progress) -> JepaModel:
    """Train one network.

    The loss is the squared error of the next latent, targets not detached, plus the weighted
    SIGReg term.
    """
    torch.manual_seed(seed)
    windows = Windows(episodes, seed)
    model = build()
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    warm_up = max(1, round(WARM_UP * steps))

    def rate(done: int) -> float:
        if done < warm_up:
            return (done + 1) / warm_up
        cosine = math.cos(math.pi * (done - warm_up) / max(1, steps - warm_up))
        return LAST_RATE + (1 - LAST_RATE) * (1 + cosine) / 2

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    task = progress.add_task("training", total=steps)
    for _ in range(steps):
        frames, blocks = windows.draw(BATCH)
        if recipe.sigma_max > 0:
            frames = add_noise(frames, recipe.sigma_max)
        latents = model.encode(frames.flatten(0, 1)).reshape(BATCH, HISTORY + 1, -1)
        predicted = model.predict(latents[:, :-1], model.embed_actions(blocks))
        error = (predicted - latents[:, 1:]).square().mean()
        spread = sigreg(latents)
        loss = error + recipe.sigreg_weight * spread
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        schedule.step()
        progress.update(
            task,
            advance=1,
            description=f"prediction {error.item():.4f}  SIGReg {spread.item():.2f}",
        )
    return model.eval()


@torch.no_grad()
def probe(model: Any) -> tuple[list[float], float]:  # noqa: ANN401 - what encodes
    """Check that the latents of a model's ``encode`` still hold the agent's position.

    Loss curves do not show a folded or collapsed latent space; these numbers do.

    Returns:
        R^2 of x and of y, read linearly from clean latents on held-out episodes, and the median
        distance between latents.
    """
    positions = simulate(PROBE_EPISODES, BLOCKS, PROBE_SEED).positions[:, ::FRAMESKIP]
    half = PROBE_EPISODES // 2
    known, asked = (part.reshape(-1, 2) for part in (positions[:half], positions[half:]))

    def latents(at: np.ndarray) -> np.ndarray:
        frames = torch.from_numpy(render(at))
        return model.encode(to_model_input(frames, frames.shape[1])).double().numpy()

    def with_bias(features: np.ndarray) -> np.ndarray:
        return np.concatenate([features, np.ones((len(features), 1))], axis=1)

    seen, unseen = latents(known), latents(asked)
    readout = np.linalg.lstsq(with_bias(seen), known, rcond=None)[0]
    residual = asked - with_bias(unseen) @ readout
    r2 = 1 - residual.var(axis=0) / asked.var(axis=0)
    distances = torch.nn.functional.pdist(torch.from_numpy(unseen))
    return r2.tolist(), distances.median().item()


def main() -> None:
    """Train what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="where the checkpoint folders go, default: checkpoints or sweep beside this file",
    )
    parser.add_argument("--sweep", action="store_true", help="train the sweep, stored as float16")
    parser.add_argument("--only", help="train this checkpoint alone")
    parser.add_argument("--seed", type=int, default=0, help="of the demo's, default: %(default)s")
    parser.add_argument("--steps", type=int, default=STEPS, help="default: %(default)s")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    args = parser.parse_args()

    jobs = {name: (recipe, args.seed) for name, recipe in RECIPES.items()}
    if args.sweep:
        jobs = {
            f"noise-{level:.2f}-run-{run}": (Recipe(sigreg_weight=0.025, sigma_max=level), run)
            for run in SWEEP_RUNS
            for level in SWEEP_LEVELS
        }
    if args.only is not None:
        if args.only not in jobs:
            parser.error(f"--only {args.only}: no checkpoint has that name")
        jobs = {args.only: jobs[args.only]}
    out = args.out or Path(__file__).parent / ("sweep" if args.sweep else "checkpoints")
    torch.set_num_threads(args.threads)
    console = Console()
    for name, (recipe, seed) in jobs.items():
        with Progress(console=console, transient=True) as progress:
            size = {"steps": args.steps, "episodes": args.episodes}
            model = train(recipe, seed=seed, **size, progress=progress)
        save(model, out / name, torch.float16 if args.sweep else torch.float32)
        (r2_x, r2_y), distance = probe(model)
        console.print(
            f"{name}: probe R^2 x {r2_x:.3f} y {r2_y:.3f}, median latent distance {distance:.3g}"
        )


if __name__ == "__main__":
    main()
