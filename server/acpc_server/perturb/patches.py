"""Things before the scene: grey patches that stay, and a disk that moves."""

import math

import torch
from acpc.contract import Cutout, Distractor, Occlusion

from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD, per_channel
from acpc_server.perturb.draws import Draws, to_index
from acpc_server.perturb.registry import Cost, Frames, built_in


@built_in(Occlusion, Cost(2, copies=2.0), stochastic=True)
def occlusion(frames: Frames, parameters: Occlusion, draws: Draws) -> Frames:
    """Cover a rectangle, ``round(side * size)`` pixels a side, with mid-grey.

    Its position is uniform over those inside the frame; the row is drawn first, then the column.
    """
    return _covered(frames, parameters.size, 1, draws)


@built_in(Cutout, Cost(4, copies=2.0), stochastic=True)
def cutout(frames: Frames, parameters: Cutout, draws: Draws) -> Frames:
    """Cover several such rectangles, each at a place of its own."""
    return _covered(frames, parameters.size, parameters.patches, draws)


@built_in(Distractor, Cost(10, view=75e3), stochastic=True, by_frame=False)
def distractor(frames: Frames, parameters: Distractor, draws: Draws) -> Frames:
    """Move a disk of one colour; a pixel d from its centre is covered by radius - d of [0, 1].

    Drawn first are the row and column at which its centre starts, then its direction, clockwise
    from right, then red, green and blue. Of each side it moves by ``speed`` a frame, and turns
    round at the border.
    """
    height, width = frames.shape[2:]
    radius = parameters.size * min(height, width) / 2
    view = frames.to(torch.promote_types(frames.dtype, torch.float32), copy=True)
    rows, columns = (
        torch.arange(side, dtype=torch.float64, device=view.device) + 0.5
        for side in (height, width)
    )
    parts = torch.split(view, len(view) // draws.views)
    for seen, (row, column, turn, *rgb) in zip(parts, draws.numbers(6).tolist(), strict=True):
        down, right = math.sin(2.0 * math.pi * turn), math.cos(2.0 * math.pi * turn)
        colour = per_channel(
            [(p - m) / s for p, m, s in zip(rgb, IMAGENET_MEAN, IMAGENET_STD, strict=True)], view
        )
        for time, frame in enumerate(seen):
            y = rows - height * _bounced(row + time * parameters.speed * down)
            x = columns - width * _bounced(column + time * parameters.speed * right)
            covered = (radius - (y[:, None] ** 2 + x**2).sqrt()).clamp(0.0, 1.0)
            frame.add_((colour - frame) * covered.to(view.dtype))
    return view.to(frames.dtype)


def _covered(frames: Frames, size: float, patches: int, draws: Draws) -> Frames:
    height, width = frames.shape[2:]
    tall, wide = (round(side * size) for side in (height, width))
    view = frames.clone()
    grey = per_channel(
        [(0.5 - m) / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)], view
    )
    parts = torch.split(view, len(view) // draws.views)
    for seen, numbers in zip(parts, draws.numbers(2 * patches).tolist(), strict=True):
        for row, column in zip(numbers[::2], numbers[1::2], strict=True):
            top, left = to_index(row, height - tall + 1), to_index(column, width - wide + 1)
            seen[:, :, top : top + tall, left : left + wide] = grey
    return view


def _bounced(place: float) -> float:
    """Fold a place on a line into [0, 1], as a ball between two walls."""
    place %= 2.0
    return min(place, 2.0 - place)
