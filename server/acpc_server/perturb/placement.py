"""Perturbations with a random position: an occlusion and a shift.

All frames of a history share one position, as with dirt on a lens or a displaced camera. The larger
of two occlusions of a draw covers the smaller.
"""

import numpy as np
import torch
from acpc.contract import Occlusion, RandomShift
from jaxtyping import Float
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD
from acpc_server.perturb.registry import perturbation


@perturbation("occlusion", parameters=Occlusion, stochastic=True)
def occlusion(
    frames: Float[Tensor, "n 3 h w"], parameters: Occlusion, generator: np.random.Generator
) -> Float[Tensor, "n 3 h w"]:
    """A rectangle of mid-grey, ``round(side * size)`` pixels a side, entirely inside the frame.

    Its position is uniform over those where it fits; the row is drawn first, then the column.
    """
    height, width = frames.shape[2:]
    tall, wide = (round(side * parameters.size) for side in (height, width))
    top, left = _below(generator, height - tall + 1), _below(generator, width - wide + 1)
    grey = torch.tensor([(0.5 - m) / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)])
    view = frames.clone()
    view[:, :, top : top + tall, left : left + wide] = grey.to(view).view(3, 1, 1)
    return view


@perturbation("random_shift", parameters=RandomShift, stochastic=True)
def random_shift(
    frames: Float[Tensor, "n 3 h w"], parameters: RandomShift, generator: np.random.Generator
) -> Float[Tensor, "n 3 h w"]:
    """A shift down and right by whole pixels, each uniform from -pixels to pixels.

    Border pixels are repeated, as DrQ's random crop of a padded frame does.
    """
    pixels, shorter = parameters.pixels, min(frames.shape[2:])
    if pixels >= shorter:
        raise InvalidArgument(
            "pixels",
            f"is {pixels}, but a shift of frames with a side of {shorter} pixels may be at most "
            f"{shorter - 1}",
        )
    view = frames
    for axis in (2, 3):
        shift = _below(generator, 2 * pixels + 1) - pixels
        side = frames.shape[axis]
        source = (torch.arange(side, device=frames.device) - shift).clamp(0, side - 1)
        view = view.index_select(axis, source)
    return view


def _below(generator: np.random.Generator, stop: int) -> int:
    """An integer uniform in [0, stop) that grows with ``stop`` for the same random number."""
    return int(generator.random() * stop)
