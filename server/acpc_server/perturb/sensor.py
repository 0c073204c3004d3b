"""What a camera delivers: dead pixels, and frames that it repeats."""

import math

import torch
from acpc.contract import SaltAndPepper, Stutter

from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD, per_channel
from acpc_server.perturb.draws import Draws
from acpc_server.perturb.registry import Cost, Frames, built_in


@built_in(SaltAndPepper, Cost(20), stochastic=True, by_frame=False)
def salt_and_pepper(frames: Frames, parameters: SaltAndPepper, draws: Draws) -> Frames:
    """Turn a pixel black where its uniform number is below ``share / 2``, white at the other end.

    The bound is rounded up to a multiple of 2**-24, as the numbers are.
    """
    count, _, height, width = frames.shape
    numbers = draws.uniforms((count, 1, height, width))
    bound = math.ceil(parameters.share * 2**23) / 2**24
    black, white = (
        per_channel([(p - m) / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)], frames)
        for p in (0.0, 1.0)
    )
    view = torch.where(numbers < bound, black, frames)
    return torch.where(numbers >= 1.0 - bound, white, view)


@built_in(Stutter, Cost(2, copies=2.0), stochastic=True, by_frame=False)
def stutter(frames: Frames, parameters: Stutter, draws: Draws) -> Frames:
    """Show frame t - 1 of the view again as frame t where number t is below ``chance``."""
    parts = torch.split(frames, len(frames) // draws.views)
    shown = []
    for seen, numbers in zip(parts, draws.numbers(len(parts[0])).tolist(), strict=True):
        source = 0
        for time, number in enumerate(numbers):
            source = source if time and number < parameters.chance else time
            shown.append(seen[source : source + 1])
    return torch.cat(shown)
