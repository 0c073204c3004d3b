"""Another scene: its background, its surfaces, the air before it. Formulas are for p in [0, 1]."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from acpc.contract import Background, Haze, RandomConvolution
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
from acpc_server.perturb.registry import Cost, Frames, built_in

CELLS = 4  # random numbers on each side of a smooth field
REACH = math.sqrt(3 / 27)  # of a weight, so that the 27 of a channel have variance 1 together
AIRLIGHT = 0.8
# Plates kept as model input, and the pixels that one may have: 100 MiB with their bytes.
KEPT_PLATES, KEPT_PIXELS = 16, 2**18


# A plate is made into model input once.
@built_in(
    Background, lambda asked: Cost(20, view=100e3, once=4 * len(asked.plate)), stochastic=True
)
def background(frames: Frames, parameters: Background, draws: Draws) -> Frames:
    """``p + strength m (b - p)``: b is a random field of each channel, m marks the background.

    With d the largest distance of a channel from the key, or from the plate resized as the frames
    are, m is ``2 - d / tolerance`` held to [0, 1].
    """
    view = frames.to(torch.promote_types(frames.dtype, torch.float32), copy=True)
    std = per_channel(IMAGENET_STD, view)
    apart = ((view - _empty(parameters, view)) * std).abs().amax(dim=1, keepdim=True)
    behind = (2.0 - apart / parameters.tolerance).clamp(0.0, 1.0) * parameters.strength
    fields = (_fields(draws, 3, view) - per_channel(IMAGENET_MEAN, view)) / std
    return view.add_((_each_frame(fields, view) - view) * behind).to(frames.dtype)


@built_in(Haze, Cost(8, view=60e3), stochastic=True)
def haze(frames: Frames, parameters: Haze, draws: Draws) -> Frames:
    """``p + strength d (0.8 - p)``: the density d is 1/2 plus half a random field."""
    view = frames.to(torch.promote_types(frames.dtype, torch.float32), copy=True)
    light = [(AIRLIGHT - m) / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)]
    dense = (_fields(draws, 1, view) * 0.5 + 0.5) * parameters.strength
    return view.add_((per_channel(light, view) - view) * _each_frame(dense, view)).to(frames.dtype)


@built_in(RandomConvolution, Cost(40, view=900e3), stochastic=True)
def random_convolution(frames: Frames, parameters: RandomConvolution, draws: Draws) -> Frames:
    """``p + strength (c - p)``: c is a random 3 x 3 convolution of p - 0.5, plus 0.5, saturating.

    Weights are uniform of variance 1/27, drawn in the order (to, from, row, column). The border is
    repeated. Sums run tap by tap, as those of blurs.
    """
    view = frames.to(torch.promote_types(frames.dtype, torch.float32), copy=True)
    std, mean = per_channel(IMAGENET_STD, view), per_channel(IMAGENET_MEAN, view)
    parts = torch.split(view, len(view) // draws.views)
    for seen, numbers in zip(parts, draws.numbers(81).tolist(), strict=True):
        centred = functional.pad(seen * std + (mean - 0.5), (1, 1, 1, 1), mode="replicate")
        weights = [REACH * (2.0 * number - 1.0) for number in numbers]
        mixed = torch.stack([_convolved(centred, weights[to : to + 27]) for to in (0, 27, 54)], 1)
        mixed = ((mixed + 0.5).clamp_(0.0, 1.0) - mean) / std
        seen.add_((mixed - seen) * parameters.strength)
    return view.to(frames.dtype)


def _empty(parameters: Background, like: Tensor) -> Tensor:
    """Return the empty background: one colour, or the plate, (1, 3, height, width)."""
    if parameters.key:
        bytes_ = bytes.fromhex(parameters.key)
        colour = zip(bytes_, IMAGENET_MEAN, IMAGENET_STD, strict=True)
        return per_channel([(byte / 255.0 - m) / s for byte, m, s in colour], like)
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


def _fields(draws: Draws, channels: int, like: Tensor) -> Float[Tensor, "views channels h w"]:
    """Smooth fields in [0, 1): bilinear between 4 x 4 uniform numbers, the outer at the borders."""
    coarse = draws.uniforms((draws.views, channels, CELLS, CELLS)).to(like.dtype)
    size = like.shape[2:]
    # View by view: a kernel may choose its order of sums by the number of views.
    fields = [
        functional.interpolate(one, size=size, mode="bilinear", align_corners=True)
        for one in torch.split(coarse, 1)
    ]
    return torch.cat(fields)


def _each_frame(fields: Tensor, frames: Frames) -> Tensor:
    """Repeat what each view has for its frames."""
    return fields.repeat_interleave(len(frames) // len(fields), dim=0)


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
