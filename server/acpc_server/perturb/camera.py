"""The camera: shifted, closer, or turned; with dead pixels, or frames that it repeats."""

import math
from collections.abc import Sequence

import torch
from acpc.contract import KnockedCamera, RandomShift, SaltAndPepper, Stutter, Zoom
from torch.nn import functional

from acpc_server.errors import InvalidArgument
from acpc_server.perturb.draws import Draws
from acpc_server.perturb.registry import Cost, Frames, built_in, coloured

Homography = Sequence[Sequence[float]]
"""3 x 3: from a pixel of the view to that of the frame, counted from the centre."""


@built_in(RandomShift, Cost(5), stochastic=True)
def random_shift(frames: Frames, parameters: RandomShift, draws: Draws) -> Frames:
    """Shift down and right by whole pixels, uniform from -pixels to pixels, repeating the border.

    So does DrQ's random crop of a padded frame.
    """
    pixels, shorter = parameters.pixels, min(frames.shape[2:])
    if pixels >= shorter:
        raise InvalidArgument(
            "pixels",
            f"is {pixels}, but a shift of frames with a side of {shorter} pixels may be at most "
            f"{shorter - 1}",
        )
    shifted = []
    for part, numbers in draws.each(frames, 2):
        view = part
        for axis, number in zip((2, 3), numbers, strict=True):
            places = torch.arange(view.shape[axis], device=frames.device)
            by = int(number * (2 * pixels + 1)) - pixels
            view = view.index_select(axis, (places - by).clamp(0, len(places) - 1))
        shifted.append(view)
    return torch.cat(shifted)


@built_in(Zoom, Cost(20), stochastic=True)
def zoom(frames: Frames, parameters: Zoom, draws: Draws) -> Frames:
    """Enlarge a part of the frame to the whole; the row is drawn first, then the column.

    Its place is uniform over those inside the frame, bilinear between pixels.
    """
    height, width = frames.shape[2:]
    kept = 1.0 - parameters.cut
    maps = [
        (
            (kept, 0.0, parameters.cut * width * (column - 0.5)),
            (0.0, kept, parameters.cut * height * (row - 0.5)),
            (0.0, 0.0, 1.0),
        )
        for row, column in draws.numbers(2).tolist()
    ]
    return _mapped(frames, maps)


@built_in(KnockedCamera, Cost(20, view=60e3), stochastic=True)
def knocked_camera(frames: Frames, parameters: KnockedCamera, draws: Draws) -> Frames:
    """Turn a pinhole camera: a pixel shows what the frame shows in its direction, turned.

    The direction (x, y, focal length) is turned about the vertical axis, then the horizontal one,
    then the line of sight, by ``degrees (2 u - 1)`` each; u are drawn in the opposite order.
    """
    longer = max(frames.shape[2:])
    focal = longer / 2 / math.tan(math.radians(parameters.field_of_view) / 2)
    maps = []
    for numbers in draws.numbers(3).tolist():
        angles = [math.radians(parameters.degrees * (2.0 * u - 1.0)) for u in numbers]
        (cr, cp, cy), (sr, sp, sy) = map(math.cos, angles), map(math.sin, angles)
        turned = (
            (cr * cy - sr * sp * sy, -sr * cp, cr * sy + sr * sp * cy),
            (sr * cy + cr * sp * sy, cr * cp, sr * sy - cr * sp * cy),
            (-cp * sy, sp, cp * cy),
        )
        (a, b, c), (d, e, f), (g, h, i) = turned
        maps.append(((a, b, c * focal), (d, e, f * focal), (g / focal, h / focal, i)))
    return _mapped(frames, maps)


@built_in(SaltAndPepper, Cost(20), stochastic=True)
def salt_and_pepper(frames: Frames, parameters: SaltAndPepper, draws: Draws) -> Frames:
    """Turn a pixel black where its uniform number is below ``share / 2``, white at the other end.

    The bound is rounded up to a multiple of 2**-24, as the numbers are.
    """
    count, _, height, width = frames.shape
    numbers = draws.uniforms((count, 1, height, width))
    bound = math.ceil(parameters.share * 2**23) / 2**24
    black, white = (coloured((level,) * 3, frames) for level in (0.0, 1.0))
    view = torch.where(numbers < bound, black, frames)
    return torch.where(numbers >= 1.0 - bound, white, view)


@built_in(Stutter, Cost(2), stochastic=True)
def stutter(frames: Frames, parameters: Stutter, draws: Draws) -> Frames:
    """Show frame t - 1 of the view again as frame t where number t is below ``chance``."""
    shown = []
    for seen, numbers in draws.each(frames, len(frames) // draws.views):
        source = 0
        for time, number in enumerate(numbers):
            source = source if time and number < parameters.chance else time
            shown.append(seen[source : source + 1])
    return torch.cat(shown)


def _mapped(frames: Frames, maps: Sequence[Homography]) -> Frames:
    """Sample the frames of view after view, each by its map; border pixels are repeated.

    In float64: in float32 a place could be off by some 1e-5 pixels.
    """
    height, width = frames.shape[2:]
    y, x = (
        torch.arange(side, dtype=torch.float64, device=frames.device) - (side - 1) / 2
        for side in (height, width)
    )
    views = []
    for part, rows in zip(torch.split(frames, len(frames) // len(maps)), maps, strict=True):
        across, down, depth = (x * a + (y * b + c)[:, None] for a, b, c in rows)
        grid = torch.stack([across / depth * (2 / width), down / depth * (2 / height)], dim=-1)
        views.append(
            functional.grid_sample(
                part.double(),
                grid.expand(len(part), -1, -1, -1),
                padding_mode="border",
                align_corners=False,
            )
        )
    return torch.cat(views)
