"""Encodes anchors and their views, one device call's worth of frames at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from acpc.contract import VIEWS, GivenViews, NumericMode, PerturbationSet
from torch import Tensor

from acpc_server.data import Anchors
from acpc_server.encoding.views import Draw, View, distinct_views, draw_views, unchanged
from acpc_server.engine import DeviceClient, frames_per_call, latent_dtype, to_device, to_host
from acpc_server.errors import FailedPrecondition
from acpc_server.models import FrozenWorldModel, with_proprio
from acpc_server.numerics import to_model_input
from acpc_server.scheduling import Priority, RequestContext

T = TypeVar("T")
U = TypeVar("U")
# Latents of equal frames may differ by this fraction of their length: rows of a batch round
# differently.
REPEAT_TOLERANCE = {
    NumericMode.FP64: 1e-9,
    NumericMode.FP32: 1e-4,
    NumericMode.TF32: 1e-2,
    NumericMode.BF16: 5e-2,
}


def prepared_ahead(prepare: Callable[[T], U], items: Sequence[T]) -> Generator[U, None, None]:
    """Prepare the items in order, each in a thread while the one before is in use.

    At most one prepared item waits. What ``prepare`` raises is raised in place of its result. The
    thread has ended once the generator is closed.
    """
    if len(items) < 2:
        yield from map(prepare, items)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="prepare") as thread:
        upcoming = thread.submit(copy_context().run, prepare, items[0])
        for item in items[1:]:
            ready = upcoming.result()
            upcoming = thread.submit(copy_context().run, prepare, item)
            yield ready
            del ready  # not held while the next one is waited for
        yield upcoming.result()


@dataclass(frozen=True)
class EncodedAnchors:
    """Projected latents of n anchors, float32; in fp64 float64.

    Attributes:
        clean: The kept frames, (n, kept, dim).
        views: The distinct views of the history, (n, views, h, dim); one whose frames equal the
            history's has its very latents.
    """

    clean: Tensor
    views: Tensor


@dataclass(eq=False)
class AnchorEncoder:
    """Encodes anchors for jobs, with nothing cached, in calls cut by the job's shape alone.

    While the device computes a call's worth of frames, those of the next are read and drawn. Keeps
    the newest ``history`` frames of each anchor, and ``future`` ones, counted from 0.
    """

    engine: DeviceClient
    model: FrozenWorldModel
    mode: NumericMode
    anchors: Anchors
    history: int
    future: Sequence[int]
    views: PerturbationSet

    def __post_init__(self) -> None:
        now = self.anchors.history
        self._kept = [*range(now - self.history, now), *(now + step for step in self.future)]
        self._view_count = len(distinct_views(self.views))

    def encode(self, start: int, stop: int, context: RequestContext) -> EncodedAnchors:
        """Latents of anchors [start, stop).

        Raises FailedPrecondition: The frames are gone or others, a plug-in perturbation breaks its
        promise, or the checkpoint does not repeat itself; Cancelled, Unavailable,
        ResourceExhausted: From the engine.
        """
        frames = len(self._kept) + self._view_count * self.history
        groups = anchor_groups(self.engine, self.model, start, stop, frames)
        with closing(prepared_ahead(partial(self._prepare, context), groups)) as inputs:
            parts = [self._encode_inputs(*one, context) for one in inputs]
        clean, views = (torch.cat(each) for each in zip(*parts, strict=True))
        if self.model.card.proprio_dim:
            rows = self.anchors.read_extra("proprio", start, stop)[:, self._kept]
            given = torch.from_numpy(rows)
            slots = self.engine.embed_proprio(self.model, given, context, self.mode)
            own = slots[:, None, : self.history].expand(*views.shape[:3], -1)
            clean, views = with_proprio(clean, slots), with_proprio(views, own)
        return EncodedAnchors(clean, views)

    def _prepare(self, context: RequestContext, group: range) -> tuple[Tensor, Tensor]:
        """Make the frames of a group, and bool (n, views): which equal their history."""
        dtype = latent_dtype(self.mode)
        device = self.engine.device
        clean = read_inputs(self.anchors, group, self._kept, self.model, dtype, device)
        histories = clean[:, : self.history]
        specs = range(len(self.views.specs))
        with self.engine.drawing(0.0, context) as turn:
            each = [self._views_of(spec, group, histories, turn) for spec in specs]
        views = torch.cat(each, dim=1).flatten(0, 1)  # (n * views, h, 3, height, width)
        draws = self._draws(group, distinct_views(self.views))
        same = unchanged(views, histories, draws)
        frames = torch.cat([clean.flatten(0, 1), views.flatten(0, 1)])
        return frames, same.view(len(group), self._view_count)

    def _draws(self, group: range, which: Sequence[View]) -> list[Draw]:
        """Some views of every anchor of a group, anchor-major."""
        return [
            Draw(row, replace(self.views, anchor=anchor), view)
            for row, anchor in enumerate(self.anchors.anchor_ids[list(group)].tolist())
            for view in which
        ]

    def _views_of(
        self, spec_index: int, group: range, histories: Tensor, between: Callable[[], None]
    ) -> Tensor:
        """The distinct views of one spec, (n, views, h, 3, height, width)."""
        spec = self.views.specs[spec_index]
        if isinstance(spec, GivenViews):
            size, draws = self.model.card.image_size, self.views.draws
            return given_inputs(self.anchors, group, spec, draws, size, histories)
        which = [view for view in distinct_views(self.views) if view.spec_index == spec_index]
        views = draw_views(histories, self._draws(group, which), between)
        return views.view(len(group), -1, *views.shape[1:])

    def _encode_inputs(
        self, frames: Tensor, same: Tensor, context: RequestContext
    ) -> tuple[Tensor, Tensor]:
        n, kept = len(same), len(self._kept)
        latents = self.engine.encode(self.model, frames, context, self.mode)
        clean_latents = latents[: n * kept].reshape(n, kept, -1)
        view_latents = latents[n * kept :].reshape(n, self._view_count, self.history, -1)
        alike = to_host(same)  # after the encoder: nothing more waits
        if alike.any():
            history = clean_latents[:, None, : self.history].expand_as(view_latents)
            self._check_repeats(history[alike], view_latents[alike])
            view_latents = torch.where(alike[..., None, None], history, view_latents)
        return clean_latents, view_latents

    def _check_repeats(self, latents: Tensor, again: Tensor) -> None:
        """Raise FailedPrecondition where equal frames differ by more than rounding."""
        apart, length = (again - latents).norm(dim=-1), latents.norm(dim=-1)
        if bool((apart > REPEAT_TOLERANCE[self.mode] * length).any()):
            raise FailedPrecondition(
                f"the checkpoint encodes equal frames up to {float(apart.max()):g} apart, so it "
                "does not repeat itself; check that it is deterministic when it is not trained"
            )


def encode_frames(
    engine: DeviceClient,
    model: FrozenWorldModel,
    mode: NumericMode,
    anchors: Anchors,
    rows: range,
    kept: Sequence[int],
    context: RequestContext,
) -> Tensor:
    """Encode the kept frames of some anchors, (n, kept, dim); raises as :class:`AnchorEncoder`."""
    parts = []
    for group in anchor_groups(engine, model, rows.start, rows.stop, len(kept)):
        frames = read_inputs(anchors, group, kept, model, latent_dtype(mode), engine.device)
        parts.append(engine.encode(model, frames.flatten(0, 1), context, mode))
    latents = torch.cat(parts).reshape(len(rows), len(kept), -1)
    if not model.card.proprio_dim:
        return latents
    given = anchors.read_extra("proprio", rows.start, rows.stop)[:, list(kept)]
    slots = engine.embed_proprio(model, torch.from_numpy(given), context, mode)
    return with_proprio(latents, slots)


def read_inputs(
    anchors: Anchors,
    rows: range,
    kept: Sequence[int],
    model: FrozenWorldModel,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """Read kept frames as model input, (n, kept, 3, height, width), normalised on the device."""
    raw = anchors.read_frames(rows.start, rows.stop)[:, list(kept)]
    return _inputs(raw, model.card.image_size, dtype, device)


def given_inputs(
    anchors: Anchors, rows: range, spec: GivenViews, draws: int, size: int, like: Tensor
) -> Tensor:
    """Read the first given views as model input of side ``size``, (n, draws, h, 3, ...).

    ``like`` are the histories (n, h, 3, height, width), whose device and dtype they get.
    """
    raw = anchors.read_extra(f"{VIEWS}{spec.group}", rows.start, rows.stop)
    return _inputs(raw[:, :draws, -like.shape[1] :], size, like.dtype, like.device)


def _inputs(
    frames: np.ndarray, size: int, dtype: torch.dtype, device: torch.device | None
) -> Tensor:
    """Frames (..., height, width, 3) as model input (..., 3, height, width)."""
    raw = torch.from_numpy(np.ascontiguousarray(frames))
    if device is not None:
        (raw,) = to_device(device, torch.uint8, raw)
    inputs = to_model_input(raw.flatten(0, -4), size, dtype)
    return inputs.reshape(*raw.shape[:-3], *inputs.shape[1:])


def anchor_groups(
    engine: DeviceClient, model: FrozenWorldModel, start: int, stop: int, frames: int
) -> list[range]:
    """Cut anchors into runs whose frames, ``frames`` of each, fill about one device call."""
    size = model.card.image_size
    call = frames_per_call(engine.device.type, Priority.JOB, model.card, size, size)
    group = max(1, call // frames)
    return [range(s, min(s + group, stop)) for s in range(start, stop, group)]
