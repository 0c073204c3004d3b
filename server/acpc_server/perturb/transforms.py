"""One view of a history, the paper's identity, noise and resize, and two of a random position.

All perturbations act on normalised model input, after the resize to its size. Every step is a sum
or product element by element, torch's own interpolation or a codec given one frame at a time, so a
frame's result does not depend on the frames beside it. All frames of a history share a random
position, as with dirt on a lens or a displaced camera.
"""

from functools import lru_cache

import torch
from acpc.contract import (
    GaussianNoise,
    Identity,
    Occlusion,
    RandomShift,
    Registered,
    Resize,
    VisualChange,
)
from jaxtyping import Float
from numpy.random import Generator
from torch import Tensor
from torch.nn import functional

from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD, keyed_generator, standard_normals
from acpc_server.perturb.registry import Frames, perturbation, resolve

_DOMAIN = b"acpc/draw/1\0"


def perturb_frames(
    frames: Frames,
    spec: VisualChange,
    *,
    seed: int,
    anchor: int,
    draw: int,
) -> Frames:
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
    # Plug-ins are promised float32, whatever the network computes in.
    wide = isinstance(spec, Registered) and frames.dtype is torch.float64
    given = frames.float() if wide else frames
    view = entry.apply(given, parameters, generator)
    if view.shape != given.shape or view.dtype != given.dtype:
        raise FailedPrecondition(
            f"perturbation {entry.name!r} turned {given.dtype} {tuple(given.shape)} into "
            f"{view.dtype} {tuple(view.shape)}; it must keep dtype and shape"
        )
    return view.to(frames.dtype)


def draw_generator(name: str, *, seed: int, anchor: int, draw: int) -> Generator:
    """The generator of one draw; InvalidArgument where a number is not a uint64.

    The key holds no severity: all severities of one kind share their numbers (common random
    numbers), so that differences between severities carry no extra sampling noise. Numbers fill the
    frames in C order, so a longer history keeps the numbers of its first frames.
    """
    return keyed_generator(_DOMAIN, {"seed": seed, "anchor": anchor, "draw": draw}, name)


@perturbation("identity", parameters=Identity, stochastic=False)
def identity(frames: Frames, parameters: Identity, generator: Generator) -> Frames:
    """A copy of the frames."""
    return frames.clone()


@perturbation("gaussian_noise", parameters=GaussianNoise, stochastic=True)
def gaussian_noise(frames: Frames, parameters: GaussianNoise, generator: Generator) -> Frames:
    """Adds noise of standard deviation ``sigma`` in [0, 1] pixel units, without clipping.

    Frames are normalised already, so sigma is divided by the channel's standard deviation.
    """
    wide = torch.promote_types(frames.dtype, torch.float32)
    scale = _noise_scale(parameters.sigma, wide).to(frames.device)
    noise = standard_normals(generator, frames.shape, frames.device).to(wide).mul_(scale)
    return noise.to(frames.dtype).add_(frames)


@lru_cache(maxsize=256)
def _noise_scale(sigma: float, dtype: torch.dtype) -> Float[Tensor, "3 1 1"]:
    """Standard deviation of the noise in each normalised channel."""
    return sigma / torch.tensor(IMAGENET_STD, dtype=dtype).view(3, 1, 1)


@perturbation("resize", parameters=Resize, stochastic=False)
def resize(frames: Frames, parameters: Resize, generator: Generator) -> Frames:
    """Bilinear down and back up, ``align_corners`` false, no antialiasing on either leg.

    ``round`` is Python's: a half goes to the even neighbour.
    """
    height, width = frames.shape[2:]
    small = [max(1, round(side * parameters.scale)) for side in (height, width)]
    down = functional.interpolate(frames.contiguous(), size=small, mode="bilinear")
    return functional.interpolate(down, size=(height, width), mode="bilinear")


@perturbation("occlusion", parameters=Occlusion, stochastic=True)
def occlusion(frames: Frames, parameters: Occlusion, generator: Generator) -> Frames:
    """A rectangle of mid-grey, ``round(side * size)`` pixels a side, entirely inside the frame.

    Its position is uniform over those where it fits; the row is drawn first, then the column.
    """
    height, width = frames.shape[2:]
    tall, wide = (round(side * parameters.size) for side in (height, width))
    top, left = _below(generator, height - tall + 1), _below(generator, width - wide + 1)
    grey = [(0.5 - m) / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)]
    view = frames.clone()
    view[:, :, top : top + tall, left : left + wide] = view.new_tensor(grey).view(3, 1, 1)
    return view


@perturbation("random_shift", parameters=RandomShift, stochastic=True)
def random_shift(frames: Frames, parameters: RandomShift, generator: Generator) -> Frames:
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


def _below(generator: Generator, stop: int) -> int:
    """An integer uniform in [0, stop) that grows with ``stop`` for the same random number."""
    return int(generator.random() * stop)
