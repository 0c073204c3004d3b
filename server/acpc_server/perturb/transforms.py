"""Views of histories: the paper's identity, noise and resize, and two of a random position.

All perturbations act on normalised model input. Every step is element by element, torch's own
interpolation or a codec for one frame at a time, so a frame's result does not depend on the frames
beside it. All frames of a history share a random position, as with dirt on a lens.
"""

from collections.abc import Callable, Sequence

import torch
from acpc.contract import (
    GaussianNoise,
    GivenViews,
    Identity,
    Occlusion,
    RandomShift,
    Resize,
    VisualChange,
)
from torch.nn import functional

from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD, per_channel
from acpc_server.perturb.draws import DrawKey, Draws
from acpc_server.perturb.registry import (
    Frames,
    Perturbation,
    drawing_work,
    perturbation,
    resolve,
)

# Values that are perturbed at a time: a CPU's caches hold them, a device's memory does easily.
CPU_VALUES, DEVICE_VALUES = 2**19, 2**25
# Work that a CPU does in one go, 7 ms; see :func:`drawing_work`.
PIECE_WORK = 3.5e6
NOT_DRAWN = (
    "given views are frames of an anchor set, which jobs alone have; a call that brings its own "
    "history brings its own views, as explicit_views"
)


def perturb_frames(
    frames: Frames, spec: VisualChange, *, seed: int, anchor: int, draw: int
) -> Frames:
    """Draw one view of the frames of one history; raises as :func:`perturb_histories`."""
    return perturb_histories([frames], spec, [DrawKey(seed, anchor, draw)])[0]


def perturb_histories(
    histories: Sequence[Frames],
    spec: VisualChange,
    keys: Sequence[DrawKey],
    between: Callable[[], None] = lambda: None,
) -> list[Frames]:
    """Draw a view of each history, all of one shape, with the bits that it has alone.

    Views are made on the histories' device, which nothing here waits for; ``jpeg`` runs on the
    host. They are drawn a piece of work at a time, with a call of ``between`` before each.

    Raises:
        InvalidArgument: A number out of range, an unknown registered name or its parameters, or a
            blur or shift that does not fit the frames.
        FailedPrecondition: A plug-in that cannot be loaded or returns another shape or dtype.
    """
    entry, parameters = resolve(spec)
    if not entry.stochastic:  # the same numbers for all, so that one draw stands for every draw
        keys = [DrawKey(0, 0, 0)] * len(histories)
    first = histories[0]
    on_cpu = first.device.type == "cpu"
    size = (CPU_VALUES if on_cpu else DEVICE_VALUES) // max(1, first.numel())
    if on_cpu:
        work = drawing_work(spec, len(first), first.shape[-2] * first.shape[-1])
        size = min(size, int(PIECE_WORK // max(1.0, work)))
    size = max(1, size) if entry.many else 1
    views: list[Frames] = []
    for start in range(0, len(histories), size):
        between()
        rows = slice(start, start + size)
        views += _perturbed(entry, parameters, histories[rows], keys[rows])
    return views


def _perturbed(
    entry: Perturbation, parameters: object, histories: Sequence[Frames], keys: Sequence[DrawKey]
) -> Sequence[Frames]:
    """Draw the views of some histories, in one call of the perturbation."""
    dtype = histories[0].dtype
    given = histories[0] if len(histories) == 1 else torch.cat([*histories])
    # Plug-ins are promised float32, whatever the network computes in.
    if dtype is torch.float64 and not issubclass(entry.parameters, VisualChange):
        given = given.float()
    view = entry.apply(given, parameters, Draws(entry.name, keys, given.device))
    if view.shape != given.shape or view.dtype != given.dtype:
        raise FailedPrecondition(
            f"perturbation {entry.name!r} turned {given.dtype} {tuple(given.shape)} into "
            f"{view.dtype} {tuple(view.shape)}; it must keep dtype and shape"
        )
    return torch.split(view.to(dtype), len(histories[0]))


@perturbation("identity", parameters=Identity, stochastic=False, passes=2, many=True, by_frame=True)
def identity(frames: Frames, parameters: Identity, draws: Draws) -> Frames:
    """Copy the frames."""
    return frames.clone()


@perturbation("gaussian_noise", parameters=GaussianNoise, stochastic=True, passes=20, many=True)
def gaussian_noise(frames: Frames, parameters: GaussianNoise, draws: Draws) -> Frames:
    """Add noise of standard deviation ``sigma`` in [0, 1] pixel units, without clipping."""
    noise = draws.normals(frames.shape)
    noise = noise.to(torch.promote_types(frames.dtype, torch.float32))
    noise *= parameters.sigma / per_channel(IMAGENET_STD, noise)
    return noise.to(frames.dtype).add_(frames)


@perturbation("resize", parameters=Resize, stochastic=False, passes=6, many=True, by_frame=True)
def resize(frames: Frames, parameters: Resize, draws: Draws) -> Frames:
    """Resize down and back up: bilinear, ``align_corners`` false, without antialiasing.

    ``round`` is Python's: a half goes to the even neighbour.
    """
    height, width = frames.shape[2:]
    small = [max(1, round(side * parameters.scale)) for side in (height, width)]
    down = functional.interpolate(frames.contiguous(), size=small, mode="bilinear")
    return functional.interpolate(down, size=(height, width), mode="bilinear")


@perturbation("given_views", parameters=GivenViews, stochastic=True, passes=2)
def given_views(frames: Frames, parameters: GivenViews, draws: Draws) -> Frames:
    """Raise InvalidArgument: jobs read these views from their anchor set."""
    raise InvalidArgument("", NOT_DRAWN)


@perturbation(
    "occlusion", parameters=Occlusion, stochastic=True, passes=2, many=True, by_frame=True
)
def occlusion(frames: Frames, parameters: Occlusion, draws: Draws) -> Frames:
    """Cover a rectangle, ``round(side * size)`` pixels a side, with mid-grey.

    Its position is uniform over those inside the frame; the row is drawn first, then the column.
    """
    height, width = frames.shape[2:]
    tall, wide = (round(side * parameters.size) for side in (height, width))
    places = [
        (_below(row, height - tall + 1), _below(column, width - wide + 1))
        for row, column in draws.numbers(2).tolist()
    ]
    view = frames.clone()
    grey = [(0.5 - m) / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)]
    for seen, (top, left) in zip(torch.split(view, len(view) // len(places)), places, strict=True):
        seen[:, :, top : top + tall, left : left + wide] = per_channel(grey, seen)
    return view


@perturbation(
    "random_shift", parameters=RandomShift, stochastic=True, passes=4, many=True, by_frame=True
)
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
    by = [[_below(u, 2 * pixels + 1) - pixels for u in row] for row in draws.numbers(2).tolist()]
    parts = torch.split(frames, len(frames) // draws.views)
    return torch.cat([_shifted(part, shift) for part, shift in zip(parts, by, strict=True)])


def _shifted(frames: Frames, by: Sequence[int]) -> Frames:
    for axis, shift in zip((2, 3), by, strict=True):
        side = frames.shape[axis]
        source = (torch.arange(side, device=frames.device) - shift).clamp(0, side - 1)
        frames = frames.index_select(axis, source)
    return frames


def _below(number: float, stop: int) -> int:
    """Turn a uniform number in [0, 1) into an integer in [0, stop)."""
    return int(number * stop)
