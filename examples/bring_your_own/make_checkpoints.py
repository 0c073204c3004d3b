"""Train two convolutional world models on the two-room world: on clean frames, and with noise.

    python examples/bring_your_own/make_checkpoints.py

Needs the package beside this file on the path (pip install --no-deps examples/bring_your_own) and
takes about a minute a checkpoint on one thread.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from acpc_conv_jepa.family import ConvJepaConfig, build_network
from acpc_conv_jepa.network import ConvJepa
from torch import Tensor

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "two_room"))

from train import Windows, add_noise, probe, sigreg  # noqa: E402
from world import FRAMESKIP, IMAGE_SIZE  # noqa: E402

CONFIG: dict[str, Any] = {
    "_target_": "acpc_conv_jepa.ConvJepa",
    "image_size": IMAGE_SIZE,
    "action_block_dim": 2 * FRAMESKIP,
    "encoder": [
        {"channels": 16, "kernel": 5, "stride": 2},
        {"channels": 32, "kernel": 5, "stride": 2},
        {"channels": 32, "kernel": 3, "stride": 2},
        {"channels": 8, "kernel": 3},
    ],
    "predictor": [32, 32],
}
# Name and largest std of the training noise, in [0, 1] pixel units.
CHECKPOINTS = {"conv-base": 0.0, "conv-augmented": 0.16}
EPISODES, STEPS, BATCH, RATE, WARM_UP = 500, 800, 64, 2e-3, 40
SPREAD_WEIGHT = 0.05


def losses(model: ConvJepa, frames: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Error of the unrolled prediction, and how far the latents are from a standard Gaussian.

    Args:
        model: In training mode.
        frames: (batch, time, 3, side, side).
        blocks: (batch, time - 1, width).
    """
    latents = model.encode(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
    state, error = latents[:, 0], torch.zeros(())
    for step in range(blocks.shape[1]):
        state = model.predict(state, blocks[:, step])
        error = error + (state - latents[:, step + 1]).square().mean()
    return error / blocks.shape[1], sigreg(latents)


def train(sigma_max: float, steps: int, episodes: int, seed: int = 0) -> ConvJepa:
    """One network in eval mode; the same seed on the same machine gives the same weights."""
    torch.manual_seed(seed)
    windows = Windows(episodes, seed)
    model = build_network(ConvJepaConfig.model_validate(CONFIG))
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda done: min(
            (done + 1) / WARM_UP, 0.02 + 0.49 * (1 + math.cos(math.pi * done / steps))
        ),
    )
    for done in range(steps):
        frames, blocks = windows.draw(BATCH)
        error, spread = losses(model, add_noise(frames, sigma_max), blocks)
        optimiser.zero_grad()
        (error + SPREAD_WEIGHT * spread).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if done % 100 == 0 or done == steps - 1:
            print(f"step {done}: prediction {error.item():.4f}, spread {spread.item():.2f}")
    return model.eval()


def save(model: ConvJepa, folder: Path) -> None:
    """Write ``config.json`` and ``weights.safetensors``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "weights.safetensors").write_bytes(safetensors.torch.save(model.state_dict()))


def main() -> None:
    """Train and write what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=HERE / "checkpoints", help="where they go")
    parser.add_argument("--steps", type=int, default=STEPS, help="default: %(default)s")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="default: %(default)s")
    parser.add_argument("--only", choices=CHECKPOINTS, help="train this one alone")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, sigma_max in CHECKPOINTS.items():
        if args.only in (None, name):
            model = train(sigma_max, args.steps, args.episodes)
            save(model, args.out / name)
            (x, y), _ = probe(model)
            print(f"{name}: probe R^2 of x {x:.3f}, y {y:.3f}")


if __name__ == "__main__":
    main()
