"""One view of a history, and the paper's identity, noise and resize.

All perturbations act on normalised model input, after the resize to its size. Every step is a sum
or product element by element, torch's own interpolation or a codec given one frame at a time, so a
frame's result does not depend on the frames beside it.
"""

from functools import lru_cache

import numpy as np
import torch
from acpc.contract import GaussianNoise, Identity, Resize, VisualChange
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from acpc_server.errors import FailedPrecondition
from acpc_server.numerics import IMAGENET_STD, keyed_generator, standard_normals
from acpc_server.perturb.registry import perturbation, resolve

_DOMAIN = b"acpc/draw/1\0"


def perturb_frames(
    frames: Float[Tensor, "n 3 h w"],
    spec: VisualChange,
    *,
    seed: int,
    anchor: int,
    draw: int,
) -> Float[Tensor, "n 3 h w"]:
    """One perturbed view of the frames of one history.

    Raises:
        InvalidArgument: A number out of range, an unknown registered name or its parameters, or a
            blur or shift that does not fit the frames.
        FailedPrecondition: A plug-in that cannot be loaded or returns another shape or dtype.
    """
    entry, parameters = resolve(spec)
    generator = draw_generator(entry.name, seed=seed, anchor=anchor, draw=draw)
    if not entry.stochastic:  # one generator for all, so that one draw stands for every draw
        generator = draw_generator(entry.name, seed=0, anchor=0, draw=0)
    view = entry.apply(frames, parameters, generator)
    if view.shape != frames.shape or view.dtype != frames.dtype:
        raise FailedPrecondition(
            f"perturbation {entry.name!r} turned {frames.dtype} {tuple(frames.shape)} into "
            f"{view.dtype} {tuple(view.shape)}; it must keep dtype and shape"
        )
    return view


def draw_generator(name: str, *, seed: int, anchor: int, draw: int) -> np.random.Generator:
    """The generator of one draw.

    The key holds no severity: all severities of one kind share their numbers (common random
    numbers), so that differences between severities carry no extra sampling noise. Numbers fill the
    frames in C order, so a longer history keeps the numbers of its first frames.

    Raises:
        InvalidArgument: A number is not a uint64.
    """
    return keyed_generator(_DOMAIN, {"seed": seed, "anchor": anchor, "draw": draw}, name)


@perturbation("identity", parameters=Identity, stochastic=False)
def identity(
    frames: Float[Tensor, "n 3 h w"], parameters: Identity, generator: np.random.Generator
) -> Float[Tensor, "n 3 h w"]:
    """A copy of the frames."""
    return frames.clone()


@perturbation("gaussian_noise", parameters=GaussianNoise, stochastic=True)
def gaussian_noise(
    frames: Float[Tensor, "n 3 h w"], parameters: GaussianNoise, generator: np.random.Generator
) -> Float[Tensor, "n 3 h w"]:
    """Adds noise of standard deviation ``sigma`` in [0, 1] pixel units, without clipping.

    Frames are normalised already, so sigma is divided by the channel's standard deviation.
    """
    scale = _noise_scale(parameters.sigma).to(frames.device)
    noise = standard_normals(generator, frames.shape, frames.device).mul_(scale)
    return noise.to(frames.dtype).add_(frames)


@lru_cache(maxsize=256)
def _noise_scale(sigma: float) -> Float[Tensor, "3 1 1"]:
    """Standard deviation of the noise in each normalised channel, float32."""
    return sigma / torch.tensor(IMAGENET_STD).view(3, 1, 1)


@perturbation("resize", parameters=Resize, stochastic=False)
def resize(
    frames: Float[Tensor, "n 3 h w"], parameters: Resize, generator: np.random.Generator
) -> Float[Tensor, "n 3 h w"]:
    """Bilinear down and back up, ``align_corners`` false, no antialiasing on either leg.

    ``round`` is Python's: a half goes to the even neighbour.
    """
    height, width = frames.shape[2:]
    small = [max(1, round(side * parameters.scale)) for side in (height, width)]
    down = functional.interpolate(frames.contiguous(), size=small, mode="bilinear")
    return functional.interpolate(down, size=(height, width), mode="bilinear")
