"""Changes of light and colour, and compression. Formulas are for pixels p in [0, 1].

A camera saturates: results are clamped between black and white. A value that the
resize has rounded to just outside is clamped to itself, so that severity 0 changes no bit.
"""

import io
import math

import numpy as np
import torch
from acpc.contract import Brightness, ColorJitter, Contrast, Jpeg
from jaxtyping import UInt8
from numpy.random import Generator
from PIL import Image, features
from torch import Tensor

from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD, to_model_input
from acpc_server.perturb.registry import Frames, perturbation

Matrix = list[list[float]]

IMAGE_CODEC = (
    f"libjpeg-turbo {features.version_feature('libjpeg_turbo')}"
    if features.check_feature("libjpeg_turbo")
    else f"libjpeg {features.version_codec('jpg')}"
)
"""What encodes and decodes JPEG here; another version may give other numbers."""

# Luminance and hue rotation of the W3C's Filter Effects Module Level 1 (saturate, hue-rotate).
LUMINANCE = (0.213, 0.715, 0.072)
HUE_SINE: Matrix = [
    [-0.213, -0.715, 0.928],
    [0.143, 0.140, -0.283],
    [-0.787, 0.715, 0.072],
]
# Ranges of SimCLR's colour distortion at strength 1.
JITTER_REACH = 0.8
JITTER_TURNS = 0.2


@perturbation("brightness", parameters=Brightness, stochastic=False)
def brightness(frames: Frames, parameters: Brightness, generator: Generator) -> Frames:
    """``p (1 + change)``."""
    return _recoloured(frames, _grey_scaling(parameters.change), 0.0)


@perturbation("contrast", parameters=Contrast, stochastic=False)
def contrast(frames: Frames, parameters: Contrast, generator: Generator) -> Frames:
    """``0.5 + (p - 0.5) (1 + change)``."""
    return _recoloured(frames, _grey_scaling(parameters.change), -0.5 * parameters.change)


@perturbation("color_jitter", parameters=ColorJitter, stochastic=True)
def color_jitter(frames: Frames, parameters: ColorJitter, generator: Generator) -> Frames:
    """Brightness, contrast, saturation and hue, one after the other, each by a uniform number."""
    u = [2.0 * generator.random() - 1.0 for _ in range(4)]
    light, spread, chroma = (JITTER_REACH * parameters.strength * number for number in u[:3])
    turn = 2.0 * math.pi * JITTER_TURNS * parameters.strength * u[3]
    view = _recoloured(frames, _grey_scaling(light), 0.0)
    view = _recoloured(view, _grey_scaling(spread), -0.5 * spread)
    view = _recoloured(view, _chroma_change(chroma, 0.0), 0.0)
    return _recoloured(view, _chroma_change(math.cos(turn) - 1.0, math.sin(turn)), 0.0)


@perturbation("jpeg", parameters=Jpeg, stochastic=False)
def jpeg(frames: Frames, parameters: Jpeg, generator: Generator) -> Frames:
    """Rounded to 8 bits, encoded with 4:2:0 chroma subsampling, and decoded, frame by frame."""
    if parameters.quality == 100:
        return frames.clone()
    std, mean = (
        torch.tensor(values, dtype=torch.float64).view(3, 1, 1)
        for values in (IMAGENET_STD, IMAGENET_MEAN)
    )
    grey_levels = (frames.detach().to("cpu", torch.float64) * std + mean) * 255.0
    stored = grey_levels.round().clamp(0.0, 255.0).to(torch.uint8)
    decoded = np.stack([_compressed(frame, parameters.quality) for frame in stored])
    wide = torch.promote_types(frames.dtype, torch.float32)
    view = to_model_input(torch.from_numpy(decoded), min(frames.shape[2:]), wide)
    return view.to(frames.device, frames.dtype)


def _compressed(frame: UInt8[Tensor, "3 h w"], quality: int) -> UInt8[np.ndarray, "h w 3"]:
    """One frame as a decoder gives it back."""
    stream = io.BytesIO()
    image = Image.fromarray(frame.permute(1, 2, 0).numpy())
    image.save(stream, "JPEG", quality=quality, subsampling="4:2:0")
    return np.asarray(Image.open(stream))


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


def _recoloured(frames: Frames, change: Matrix, offset: float) -> Frames:
    """``p + change @ p + offset`` at every pixel, saturating."""
    wide = frames.to(torch.promote_types(frames.dtype, torch.float32))
    view = torch.empty_like(wide)
    for channel, (row, std, mean) in enumerate(
        zip(change, IMAGENET_STD, IMAGENET_MEAN, strict=True)
    ):
        value = wide[:, channel]
        constant = math.fsum(w * m for w, m in zip(row, IMAGENET_MEAN, strict=True)) + offset
        total = torch.full_like(value, constant / std)
        for other, (weight, other_std) in enumerate(zip(row, IMAGENET_STD, strict=True)):
            total += wide[:, other] * (weight * other_std / std)
        total += value
        black, white = -mean / std, (1.0 - mean) / std
        total = total.maximum(value.clamp(max=black)).minimum(value.clamp(min=white))
        view[:, channel] = total
    return view.to(frames.dtype)
