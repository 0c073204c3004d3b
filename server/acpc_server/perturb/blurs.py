"""Blurs: weighted means of each pixel's neighbourhood, with reflected borders.

The border pixel itself is not repeated. Sums run tap by tap in one order: a convolution would
choose its algorithm, and so its rounding, by batch size. Sums of many taps on a CPU are products of
Fourier transforms in float64, frame by frame.
"""

import math
from collections.abc import Iterable

import numpy as np
import scipy.fft
import torch
from acpc.contract import DefocusBlur, GaussianBlur, MotionBlur
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from acpc_server.errors import InvalidArgument
from acpc_server.perturb.draws import Draws
from acpc_server.perturb.registry import Cost, Frames, built_in

Taps = list[tuple[int, int, float]]
"""Row, column and weight of each tap, counted from the corner of the kernel."""

# A transform and back costs as much as so many taps, and less than more.
TRANSFORM_TAPS = 64


def _cost(taps: float, reach: float) -> Cost:
    """Cost of a sum over a square of weights; a transform covers the borders too."""
    passes = min(1 + taps, TRANSFORM_TAPS + 2 * reach)
    return Cost(passes, view=30e3 + 100 * (2 * reach + 1) ** 2)


@built_in(
    GaussianBlur, lambda asked: Cost(2 * min(1 + asked.kernel_size, TRANSFORM_TAPS), view=100e3)
)
def gaussian_blur(frames: Frames, parameters: GaussianBlur, draws: Draws) -> Frames:
    """Separable Gaussian blur."""
    size = parameters.kernel_size
    reach = size // 2
    shorter = min(frames.shape[2:])
    if reach >= shorter:
        raise InvalidArgument(
            "kernel_size",
            f"is {size}, but reflected borders of frames with a side of {shorter} pixels allow at "
            f"most {2 * shorter - 1}",
        )
    sigma = 0.3 * ((size - 1) * 0.5 - 1) + 0.8
    raw = [math.exp(-0.5 * ((tap - reach) / sigma) ** 2) for tap in range(size)]
    weights = [value / math.fsum(raw) for value in raw]
    across = [(0, tap, weight) for tap, weight in enumerate(weights)]
    down = [(tap, 0, weight) for tap, weight in enumerate(weights)]
    rows = _weighted_sum(_padded(frames, 0, reach), across, frames.shape[2:])
    return _weighted_sum(_padded(rows, reach, 0), down, frames.shape[2:])


@built_in(DefocusBlur, lambda asked: _cost(4 * (asked.radius + 0.5) ** 2, asked.radius))
def defocus_blur(frames: Frames, parameters: DefocusBlur, draws: Draws) -> Frames:
    """Mean over a disk: a tap d pixels outside it weighs as 1 - d, at least 0."""
    radius = parameters.radius
    reach = _fitting_reach(radius, frames, "radius", radius)
    offsets = _offsets(reach)
    beyond = [max(0.0, math.hypot(y, x) - radius) for y, x in offsets]
    return _blurred(frames, reach, zip(offsets, beyond, strict=True))


@built_in(MotionBlur, lambda asked: _cost(2 * asked.length, asked.length / 2))
def motion_blur(frames: Frames, parameters: MotionBlur, draws: Draws) -> Frames:
    """Mean over a line: a tap d pixels away from it weighs as 1 - d, at least 0."""
    half = parameters.length / 2
    reach = _fitting_reach(half, frames, "length", parameters.length)
    turn = math.radians(parameters.angle)
    along_x, along_y = math.cos(turn), -math.sin(turn)  # rows count downwards
    offsets = _offsets(reach)
    beyond = []
    for y, x in offsets:
        along = x * along_x + y * along_y
        along = min(max(along, -half), half)
        beyond.append(math.hypot(x - along * along_x, y - along * along_y))
    return _blurred(frames, reach, zip(offsets, beyond, strict=True))


def _fitting_reach(extent: float, frames: Tensor, field: str, value: float) -> int:
    """Pixels from the centre to the last tap of a shape that extends so far from it."""
    reach, shorter = math.ceil(extent), min(frames.shape[2:])
    if reach >= shorter:
        raise InvalidArgument(
            field,
            f"is {value:g}, but reflected borders of frames with a side of {shorter} pixels allow "
            f"at most {(shorter - 1) * value / extent:g}",
        )
    return reach


def _offsets(reach: int) -> list[tuple[int, int]]:
    span = range(-reach, reach + 1)
    return [(y, x) for y in span for x in span]


def _blurred(frames: Frames, reach: int, beyond: Iterable[tuple[tuple[int, int], float]]) -> Frames:
    """Mean with weights that fall from 1 to 0 within one pixel ``beyond`` a shape: no jump at 0."""
    raw = [(y + reach, x + reach, 1 - d) for (y, x), d in beyond if d < 1]
    total = math.fsum(weight for _, _, weight in raw)
    taps = [(y, x, weight / total) for y, x, weight in raw]
    return _weighted_sum(_padded(frames, reach, reach), taps, frames.shape[2:])


def _padded(frames: Frames, down: int, across: int) -> Float[Tensor, "n 3 out_h out_w"]:
    return functional.pad(frames, (across, across, down, down), mode="reflect")


def _weighted_sum(padded: Frames, taps: Taps, size: torch.Size) -> Float[Tensor, "n 3 out_h out_w"]:
    height, width = size
    if len(taps) > TRANSFORM_TAPS and padded.device.type == "cpu":
        return _transformed(padded, taps, size)
    total = padded.new_zeros(*padded.shape[:2], height, width)
    product = torch.empty_like(total)
    for top, left, weight in taps:  # a fused multiply-add would round by memory layout
        total += torch.mul(
            padded[..., top : top + height, left : left + width], weight, out=product
        )
    return total


def _transformed(padded: Frames, taps: Taps, size: torch.Size) -> Float[Tensor, "n 3 out_h out_w"]:
    """Compute :func:`_weighted_sum`; sums around the far edge are wrong, and are cut off."""
    axes = [axis for axis in (-2, -1) if padded.shape[axis] != size[axis]]
    sides = [scipy.fft.next_fast_len(padded.shape[axis], real=True) for axis in axes]
    kernel = np.zeros([padded.shape[axis] - size[axis] + 1 for axis in (-2, -1)])
    for top, left, weight in taps:
        kernel[top, left] = weight
    response = scipy.fft.rfftn(kernel, sides, axes).conj()
    total = padded.new_empty(*padded.shape[:2], *size)
    for frame, out in zip(padded.detach(), total, strict=True):  # each with the bits it has alone
        spectrum = scipy.fft.rfftn(frame.double().numpy(), sides, axes)
        spectrum *= response
        found = scipy.fft.irfftn(spectrum, sides, axes)[:, : size[0], : size[1]]
        out.copy_(torch.from_numpy(found))
    return total
