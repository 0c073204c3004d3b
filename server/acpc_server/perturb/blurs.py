"""Blurs: weighted means of each pixel's neighbourhood, with reflected borders.

The border pixel itself is not repeated. Sums run tap by tap in one order: a convolution would
choose its algorithm, and so its rounding, by batch size.
"""

import math
from collections.abc import Iterable

import torch
from acpc.contract import DefocusBlur, GaussianBlur, MotionBlur
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from acpc_server.errors import InvalidArgument
from acpc_server.perturb.draws import Draws
from acpc_server.perturb.registry import Frames, perturbation

Taps = list[tuple[int, int, float]]
"""Row, column and weight of each tap, counted from the corner of the kernel."""


@perturbation("gaussian_blur", parameters=GaussianBlur, stochastic=False, many=True, by_frame=True)
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
    padded = _padded(frames, reach)
    rows = _weighted_sum(padded, across, torch.Size((padded.shape[2], frames.shape[3])))
    return _weighted_sum(rows, down, frames.shape[2:]).to(frames.dtype)


@perturbation("defocus_blur", parameters=DefocusBlur, stochastic=False, many=True, by_frame=True)
def defocus_blur(frames: Frames, parameters: DefocusBlur, draws: Draws) -> Frames:
    """Mean over a disk: a tap d pixels outside it weighs as 1 - d, at least 0."""
    radius = parameters.radius
    reach = _fitting_reach(radius, frames, "radius", radius)
    offsets = _offsets(reach)
    beyond = [max(0.0, math.hypot(y, x) - radius) for y, x in offsets]
    return _blurred(frames, reach, zip(offsets, beyond, strict=True))


@perturbation("motion_blur", parameters=MotionBlur, stochastic=False, many=True, by_frame=True)
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
    return _weighted_sum(_padded(frames, reach), taps, frames.shape[2:]).to(frames.dtype)


def _padded(frames: Frames, reach: int) -> Float[Tensor, "n 3 out_h out_w"]:
    wide = frames.to(torch.promote_types(frames.dtype, torch.float32))
    return functional.pad(wide, (reach, reach, reach, reach), mode="reflect")


def _weighted_sum(padded: Frames, taps: Taps, size: torch.Size) -> Float[Tensor, "n 3 out_h out_w"]:
    height, width = size
    total = padded.new_zeros(*padded.shape[:2], height, width)
    product = torch.empty_like(total)
    for top, left, weight in taps:  # a fused multiply-add would round by memory layout
        total += torch.mul(
            padded[..., top : top + height, left : left + width], weight, out=product
        )
    return total
