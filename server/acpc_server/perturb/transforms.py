"""Views of histories, and the paper's identity, noise and resize.

All perturbations act on normalised model input. Every step is element by element, torch's own
interpolation or a codec for one frame at a time, so a frame's result does not depend on the frames
beside it. All frames of a history share a random position, as with dirt on a lens.
"""

from collections.abc import Callable, Sequence

import torch
from acpc.contract import GaussianNoise, GivenViews, Identity, Resize, VisualChange
from torch.nn import functional

from acpc_server.errors import FailedPrecondition, InvalidArgument, below
from acpc_server.numerics import IMAGENET_STD, per_channel
from acpc_server.perturb.draws import DrawKey, Draws
from acpc_server.perturb.registry import (
    PIECE_WORK,
    Cost,
    Frames,
    built_in,
    cost_of,
    perturbation,
    resolve,
    step_field,
)

# Values that are perturbed at a time: a CPU's caches hold them, a device's memory does easily.
CPU_VALUES, DEVICE_VALUES = 2**19, 2**25
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

    Of a composition every change draws as it does alone, and the second of a kind other numbers. A
    change of severity 0 copies, bit for bit.
    Views are made on the histories' device, which nothing here waits for; ``jpeg`` runs on the
    host. They are drawn a piece of work at a time, with a call of ``between`` before each.

    Raises InvalidArgument: A number out of range, an unknown registered name or its parameters, or
    a blur or shift that does not fit the frames; FailedPrecondition: A plug-in that cannot be
    loaded or returns another shape or dtype.
    """
    views, names = list(histories), [resolve(step)[0].name for step in spec.steps]
    for place, step in enumerate(spec.steps):
        if step.changes_nothing:
            views = [view.clone() for view in views]
            continue
        earlier = names[:place].count(names[place])
        stream = f"{names[place]}#{earlier + 1}" if earlier else names[place]
        with below(step_field(spec, place)):
            views = _step(views, step, keys, stream, between)
    return views


def _step(
    histories: Sequence[Frames],
    spec: VisualChange,
    keys: Sequence[DrawKey],
    stream: str,
    between: Callable[[], None],
) -> list[Frames]:
    """Draw views under one change, with the random numbers called ``stream``."""
    entry, parameters = resolve(spec)
    if not entry.stochastic:  # the same numbers for all, so that one draw stands for every draw
        keys = [DrawKey(0, 0, 0)] * len(histories)
    first = histories[0]
    on_cpu = first.device.type == "cpu"
    size = (CPU_VALUES if on_cpu else DEVICE_VALUES) // max(1, first.numel())
    if on_cpu:
        work = cost_of(spec).of_view(len(first), first.shape[-2] * first.shape[-1])
        size = min(size, int(PIECE_WORK // max(1.0, work)))
    size = max(1, size) if entry.many else 1
    views: list[Frames] = []
    for start in range(0, len(histories), size):
        between()
        rows = slice(start, start + size)
        given = torch.cat([*histories[rows]]) if len(histories[rows]) > 1 else histories[start]
        # Plug-ins are promised float32, whatever the network computes in.
        if first.dtype is torch.float64 and not issubclass(entry.parameters, VisualChange):
            given = given.float()
        view = entry.apply(given, parameters, Draws(stream, keys[rows], first.device))
        if view.shape != given.shape or view.dtype != given.dtype:
            raise FailedPrecondition(
                f"perturbation {entry.name!r} turned {given.dtype} {tuple(given.shape)} into "
                f"{view.dtype} {tuple(view.shape)}; it must keep dtype and shape"
            )
        views += torch.split(view.to(first.dtype), len(first))
    return views


@built_in(Identity, Cost(3))
def identity(frames: Frames, parameters: Identity, draws: Draws) -> Frames:
    """Copy the frames."""
    return frames


@built_in(GaussianNoise, Cost(12), stochastic=True)
def gaussian_noise(frames: Frames, parameters: GaussianNoise, draws: Draws) -> Frames:
    """Add noise of standard deviation ``sigma`` in [0, 1] pixel units, without clipping."""
    noise = draws.normals(frames.shape).to(frames.dtype)
    noise *= parameters.sigma / per_channel(IMAGENET_STD, noise)
    return noise.add_(frames)


@built_in(Resize, Cost(12))
def resize(frames: Frames, parameters: Resize, draws: Draws) -> Frames:
    """Resize down and back up: bilinear, ``align_corners`` false, without antialiasing.

    ``round`` is Python's: a half goes to the even neighbour.
    """
    height, width = frames.shape[2:]
    small = [max(1, round(side * parameters.scale)) for side in (height, width)]
    down = functional.interpolate(frames, size=small, mode="bilinear")
    return functional.interpolate(down, size=(height, width), mode="bilinear")


@perturbation("given_views", parameters=GivenViews, stochastic=True, cost=Cost(2))
def given_views(frames: Frames, parameters: GivenViews, draws: Draws) -> Frames:
    """Raise InvalidArgument: jobs read these views from their anchor set."""
    raise InvalidArgument("", NOT_DRAWN)
