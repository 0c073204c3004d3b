"""Another scene: its background, its surfaces, the air before it, and things that cover it.

Formulas are for p in [0, 1].
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from acpc.contract import Background, Cutout, Distractor, Haze, Occlusion, RandomConvolution
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from acpc_server.errors import InvalidArgument
from acpc_server.numerics import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    input_size,
    per_channel,
    to_model_input,
)
from acpc_server.perturb.draws import Draws
from acpc_server.perturb.registry import Cost, Frames, built_in, coloured

CELLS = 4  # random numbers on each side of a smooth field
REACH = math.sqrt(3 / 27)  # of a weight, so that the 27 of a channel have variance 1 together
AIRLIGHT = 0.8
# Plates kept as model input, and the pixels that one may have: 100 MiB with their bytes.
KEPT_PLATES, KEPT_PIXELS = 16, 2**18


@built_in(Background, Cost(20, view=100e3), stochastic=True)
def background(frames: Frames, parameters: Background, draws: Draws) -> Frames:
    """``p + strength m (b - p)``: b is a random field of each channel, m marks the background.

    With d the largest distance of a channel from the key, or from the plate resized as the frames
    are, m is ``2 - d / tolerance`` held to [0, 1].
    """
    std = per_channel(IMAGENET_STD, frames)
    apart = ((frames - _empty(parameters, frames)) * std).abs().amax(dim=1, keepdim=True)
    behind = (2.0 - apart / parameters.tolerance).clamp(0.0, 1.0) * parameters.strength
    fields = (_fields(draws, 3, frames) - per_channel(IMAGENET_MEAN, frames)) / std
    return frames.add_((fields - frames) * behind)


@built_in(Haze, Cost(8, view=60e3), stochastic=True)
def haze(frames: Frames, parameters: Haze, draws: Draws) -> Frames:
    """``p + strength d (0.8 - p)``: the density d is 1/2 plus half a random field."""
    dense = (_fields(draws, 1, frames) * 0.5 + 0.5) * parameters.strength
    return frames.add_((coloured((AIRLIGHT,) * 3, frames) - frames) * dense)


@built_in(RandomConvolution, Cost(40, view=900e3), stochastic=True)
def random_convolution(frames: Frames, parameters: RandomConvolution, draws: Draws) -> Frames:
    """``p + strength (c - p)``: c is a random 3 x 3 convolution of p - 0.5, plus 0.5, saturating.

    Weights are uniform of variance 1/27, drawn in the order (to, from, row, column). The border is
    repeated. Sums run tap by tap, as those of blurs.
    """
    std, mean = per_channel(IMAGENET_STD, frames), per_channel(IMAGENET_MEAN, frames)
    for seen, numbers in draws.each(frames, 81):
        centred = functional.pad(seen * std + (mean - 0.5), (1, 1, 1, 1), mode="replicate")
        weights = [REACH * (2.0 * number - 1.0) for number in numbers]
        mixed = torch.stack([_convolved(centred, weights[to : to + 27]) for to in (0, 27, 54)], 1)
        mixed = ((mixed + 0.5).clamp_(0.0, 1.0) - mean) / std
        seen.add_((mixed - seen) * parameters.strength)
    return frames


@built_in(Occlusion, Cost(2), stochastic=True)
def occlusion(frames: Frames, parameters: Occlusion, draws: Draws) -> Frames:
    """Cover a rectangle, ``round(side * size)`` pixels a side, with mid-grey.

    Its position is uniform over those inside the frame; the row is drawn first, then the column.
    """
    return _covered(frames, parameters.size, 1, draws)


@built_in(Cutout, Cost(4), stochastic=True)
def cutout(frames: Frames, parameters: Cutout, draws: Draws) -> Frames:
    """Cover several such rectangles, each at a place of its own."""
    return _covered(frames, parameters.size, parameters.patches, draws)


@built_in(Distractor, Cost(10, view=75e3), stochastic=True)
def distractor(frames: Frames, parameters: Distractor, draws: Draws) -> Frames:
    """Move a disk of one colour; a pixel d from its centre is covered by radius - d of [0, 1].

    Drawn first are the row and column at which its centre starts, then its direction, clockwise
    from right, then red, green and blue. Of each side it moves by ``speed`` a frame, and turns
    round at the border.
    """
    height, width = frames.shape[2:]
    radius = parameters.size * min(height, width) / 2
    rows, columns = (
        torch.arange(side, dtype=torch.float64, device=frames.device) + 0.5
        for side in (height, width)
    )
    for seen, (row, column, turn, *rgb) in draws.each(frames, 6):
        down, right = math.sin(2.0 * math.pi * turn), math.cos(2.0 * math.pi * turn)
        colour = coloured(rgb, frames)
        for time, frame in enumerate(seen):
            y = rows - height * _bounced(row + time * parameters.speed * down)
            x = columns - width * _bounced(column + time * parameters.speed * right)
            covered = (radius - (y[:, None] ** 2 + x**2).sqrt()).clamp(0.0, 1.0)
            frame.add_((colour - frame) * covered.to(frames.dtype))
    return frames


def _empty(parameters: Background, like: Tensor) -> Tensor:
    """Return the empty background: one colour, or the plate, (1, 3, height, width)."""
    if parameters.key:
        return coloured([byte / 255.0 for byte in bytes.fromhex(parameters.key)], like)
    if parameters.names_plate:
        raise InvalidArgument("plate", "is named by its digest, as only a job's can be; send it")
    wide, (height, width) = parameters.plate_width, like.shape[2:]
    tall = len(parameters.plate) // (3 * wide)
    # Before it is resized: a plate of one column would become millions of rows.
    if input_size((1, tall, wide, 3), min(height, width)) != (height, width):
        raise InvalidArgument(
            "plate",
            f"is {tall} x {wide} pixels, of another aspect than frames of {height} x {width}",
        )
    seen = _kept_plate if height * width <= KEPT_PIXELS else _seen_plate
    return seen(parameters.plate, wide, min(height, width), like.dtype).to(like.device)


def _seen_plate(
    plate: bytes, width: int, image_size: int, dtype: torch.dtype
) -> Float[Tensor, "1 3 h w"]:
    """Turn a plate into model input on the CPU."""
    rows = torch.frombuffer(bytearray(plate), dtype=torch.uint8)
    return to_model_input(rows.view(1, -1, width, 3), image_size, dtype)


# A large plate takes 50 ms.
_kept_plate = lru_cache(maxsize=KEPT_PLATES)(_seen_plate)


def _fields(draws: Draws, channels: int, frames: Frames) -> Float[Tensor, "n channels h w"]:
    """Smooth fields in [0, 1): bilinear between 4 x 4 uniform numbers, the outer at the borders."""
    coarse = draws.uniforms((draws.views, channels, CELLS, CELLS)).to(frames.dtype)
    size = frames.shape[2:]
    # View by view: a kernel may choose its order of sums by the number of views.
    fields = [
        functional.interpolate(one, size=size, mode="bilinear", align_corners=True)
        for one in torch.split(coarse, 1)
    ]
    return torch.cat(fields).repeat_interleave(len(frames) // draws.views, dim=0)


def _convolved(
    centred: Float[Tensor, "n 3 padded_h padded_w"], weights: Sequence[float]
) -> Float[Tensor, "n h w"]:
    """Sum 27 weighted neighbours of each pixel: by channel, then row, then column."""
    height, width = (side - 2 for side in centred.shape[2:])
    total = centred.new_zeros(len(centred), height, width)
    product = torch.empty_like(total)
    for place, weight in enumerate(weights):
        channel, top, left = place // 9, place // 3 % 3, place % 3
        tap = centred[:, channel, top : top + height, left : left + width]
        total += torch.mul(tap, weight, out=product)
    return total


def _covered(frames: Frames, size: float, patches: int, draws: Draws) -> Frames:
    height, width = frames.shape[2:]
    tall, wide = (round(side * size) for side in (height, width))
    grey = coloured((0.5, 0.5, 0.5), frames)
    for seen, numbers in draws.each(frames, 2 * patches):
        for row, column in zip(numbers[::2], numbers[1::2], strict=True):
            top, left = int(row * (height - tall + 1)), int(column * (width - wide + 1))
            seen[:, :, top : top + tall, left : left + wide] = grey
    return frames


def _bounced(place: float) -> float:
    """Fold a place on a line into [0, 1], as a ball between two walls."""
    place %= 2.0
    return min(place, 2.0 - place)
