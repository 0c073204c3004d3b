"""Where the camera looks: shifted, closer, or turned."""

import math
from collections.abc import Sequence

import torch
from acpc.contract import KnockedCamera, RandomShift, Zoom
from torch.nn import functional

from acpc_server.errors import InvalidArgument
from acpc_server.perturb.draws import Draws, to_index
from acpc_server.perturb.registry import Cost, Frames, built_in

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
    by = [[to_index(u, 2 * pixels + 1) - pixels for u in row] for row in draws.numbers(2).tolist()]
    parts = torch.split(frames, len(frames) // draws.views)
    return torch.cat([_shifted(part, shift) for part, shift in zip(parts, by, strict=True)])


def _shifted(frames: Frames, by: Sequence[int]) -> Frames:
    for axis, shift in zip((2, 3), by, strict=True):
        side = frames.shape[axis]
        source = (torch.arange(side, device=frames.device) - shift).clamp(0, side - 1)
        frames = frames.index_select(axis, source)
    return frames


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
                part.contiguous().double(),
                grid.expand(len(part), -1, -1, -1),
                padding_mode="border",
                align_corners=False,
            )
        )
    return torch.cat(views).to(frames.dtype)
