"""Changes of light and colour, and compression. Formulas are for pixels p in [0, 1].

A camera saturates: results are clamped between black and white. A value that the
resize has rounded to just outside is clamped to itself, so that severity 0 changes no bit.
"""

import io
import math
from collections.abc import Sequence

import numpy as np
import torch
from acpc.contract import Brightness, ColorJitter, Contrast, Gamma, Jpeg, Saturation, Shadow
from jaxtyping import Float
from PIL import Image, features
from torch import Tensor

from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD, per_channel, to_model_input
from acpc_server.perturb.draws import Draws
from acpc_server.perturb.registry import Cost, Frames, built_in, coloured

Matrix = list[list[float]]
Recolouring = tuple[Matrix, float]
"""A change matrix and an offset, the same for every channel."""

IMAGE_CODEC = (
    f"libjpeg-turbo {features.version_feature('libjpeg_turbo')}"
    if features.check_feature("libjpeg_turbo")
    else f"libjpeg {features.version_codec('jpg')}"
)
"""What encodes and decodes JPEG here; another version may give other numbers."""
Image.preinit()  # loads the codec here: the first image would, in the device's thread

# Luminance and hue rotation of the W3C's Filter Effects Module Level 1 (saturate, hue-rotate).
LUMINANCE = (0.213, 0.715, 0.072)
HUE_SINE: Matrix = [[-0.213, -0.715, 0.928], [0.143, 0.140, -0.283], [-0.787, 0.715, 0.072]]
# Ranges of SimCLR's colour distortion at strength 1.
JITTER_REACH = 0.8
JITTER_TURNS = 0.2


@built_in(Brightness, Cost(5))
def brightness(frames: Frames, parameters: Brightness, draws: Draws) -> Frames:
    """``p (1 + change)``."""
    return _recoloured(frames, [(_grey_scaling(parameters.change), 0.0)])


@built_in(Contrast, Cost(5))
def contrast(frames: Frames, parameters: Contrast, draws: Draws) -> Frames:
    """``0.5 + (p - 0.5) (1 + change)``."""
    return _recoloured(frames, [(_grey_scaling(parameters.change), -0.5 * parameters.change)])


@built_in(Saturation, Cost(5))
def saturation(frames: Frames, parameters: Saturation, draws: Draws) -> Frames:
    """``l + (p - l) (1 + change)`` with the luminance l."""
    return _recoloured(frames, [(_chroma_change(parameters.change, 0.0), 0.0)])


@built_in(ColorJitter, Cost(15, view=80e3), stochastic=True)
def color_jitter(frames: Frames, parameters: ColorJitter, draws: Draws) -> Frames:
    """Change brightness, contrast, saturation and hue in turn, each by a uniform number."""

    def steps(u: list[float]) -> list[Recolouring]:
        light, spread, chroma = (JITTER_REACH * parameters.strength * number for number in u[:3])
        turn = 2.0 * math.pi * JITTER_TURNS * parameters.strength * u[3]
        hue = _chroma_change(math.cos(turn) - 1.0, math.sin(turn))
        colourful = _chroma_change(chroma, 0.0)
        bright, contrasted = _grey_scaling(light), _grey_scaling(spread)
        return [(bright, 0.0), (contrasted, -0.5 * spread), (colourful, 0.0), (hue, 0.0)]

    views = [steps(u) for u in (2.0 * draws.numbers(4) - 1.0).tolist()]
    for together in zip(*views, strict=True):
        frames = _recoloured(frames, together)
    return frames


@built_in(Jpeg, Cost(30, view=150e3))
def jpeg(frames: Frames, parameters: Jpeg, draws: Draws) -> Frames:
    """Round to 8 bits, encode with 4:2:0 chroma subsampling and decode, frame by frame."""
    std, mean = (
        torch.tensor(values, dtype=torch.float64).view(3, 1, 1)
        for values in (IMAGENET_STD, IMAGENET_MEAN)
    )
    grey_levels = (frames.detach().to("cpu", torch.float64) * std + mean) * 255.0
    stored = grey_levels.round().clamp(0.0, 255.0).to(torch.uint8)
    decoded = []
    for frame in stored:
        stream, image = io.BytesIO(), Image.fromarray(frame.permute(1, 2, 0).numpy())
        image.save(stream, "JPEG", quality=parameters.quality, subsampling="4:2:0")
        decoded.append(np.asarray(Image.open(stream)))
    shown = torch.from_numpy(np.stack(decoded))
    return to_model_input(shown, min(frames.shape[2:]), frames.dtype).to(frames.device)


@built_in(Gamma, Cost(25))
def gamma(frames: Frames, parameters: Gamma, draws: Draws) -> Frames:
    """``p ** exponent`` at the 256 byte values, linear between them.

    A power's last bit depends on where its number lies in memory; a curve's depends on nothing.
    """
    std, mean = per_channel(IMAGENET_STD, frames), per_channel(IMAGENET_MEAN, frames)
    levels = ((frames * std + mean) * 255.0).clamp(0.0, 255.0)
    grey = torch.arange(256, dtype=frames.dtype, device=frames.device) / 255.0
    curve = grey**parameters.exponent
    below = levels.floor().clamp(max=254.0)
    start, end = curve[below.long()], curve[below.long() + 1]
    return (start + (end - start) * (levels - below) - mean) / std


@built_in(Shadow, Cost(4), stochastic=True)
def shadow(frames: Frames, parameters: Shadow, draws: Draws) -> Frames:
    """``p (1 - strength)`` on one side of a line through the middle half of the frame.

    The line's row is drawn first, then its column, then the direction in which it gets darker.
    """
    height, width = frames.shape[2:]
    edge = max(1.0, parameters.softness * min(height, width))
    black = coloured((0.0, 0.0, 0.0), frames)
    rows, columns = (
        torch.arange(side, dtype=frames.dtype, device=frames.device) + 0.5
        for side in (height, width)
    )
    for seen, (row, column, turn) in draws.each(frames, 3):
        down = (rows - (0.25 + 0.5 * row) * height) * (math.sin(2.0 * math.pi * turn) / edge)
        right = (columns - (0.25 + 0.5 * column) * width) * (math.cos(2.0 * math.pi * turn) / edge)
        shade = (down[:, None] + right + 0.5).clamp(0.0, 1.0) * -parameters.strength
        seen.add_((seen - black) * shade)
    return frames


def _grey_scaling(change: float) -> Matrix:
    """The change matrix that is ``change`` times the identity."""
    return [[change if row == column else 0.0 for column in range(3)] for row in range(3)]


def _chroma_change(scale: float, sine: float) -> Matrix:
    """``scale`` times the difference from luminance, plus ``sine`` times its quarter turn."""
    return [
        [
            scale * (float(row == column) - LUMINANCE[column]) + sine * HUE_SINE[row][column]
            for column in range(3)
        ]
        for row in range(3)
    ]


def _recoloured(frames: Frames, views: Sequence[Recolouring]) -> Frames:
    """``p + change @ p + offset`` at every pixel, saturating; the frames of view after view."""
    view = torch.empty_like(frames)
    for channel, (std, mean) in enumerate(zip(IMAGENET_STD, IMAGENET_MEAN, strict=True)):
        value = frames[:, channel]
        rows = [(change[channel], offset) for change, offset in views]
        total = torch.empty_like(value)
        constants = [
            (math.fsum(w * m for w, m in zip(row, IMAGENET_MEAN, strict=True)) + offset) / std
            for row, offset in rows
        ]
        total[:] = _by_view(constants, value)
        for other, other_std in enumerate(IMAGENET_STD):
            weights = [row[other] * other_std / std for row, _ in rows]
            total += frames[:, other] * _by_view(weights, value)
        total += value
        black, white = -mean / std, (1.0 - mean) / std
        total = total.maximum(value.clamp(max=black)).minimum(value.clamp(min=white))
        view[:, channel] = total
    return view


def _by_view(values: Sequence[float], frames: Float[Tensor, "n h w"]) -> Tensor | float:
    """A number for every view, to be multiplied with its frames."""
    if len(values) == 1:
        return values[0]
    numbers = frames.new_empty(len(frames), 1, 1)
    for rows, value in zip(torch.split(numbers, len(frames) // len(values)), values, strict=True):
        rows.fill_(value)  # an argument of a kernel: no copy to wait for
    return numbers
