"""What a job measures with: a checkpoint and its anchors, which it encodes with their views."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from acpc.contract import (
    VIEWS,
    GivenViews,
    NumericMode,
    PerturbationSet,
    released_future_frames,
)
from torch import Tensor

from acpc_server.data import Anchors
from acpc_server.encoding.views import Draw, distinct_views, draw_views, unchanged
from acpc_server.engine import (
    CachedCheckpoint,
    DeviceClient,
    frames_per_call,
    held_rows,
    latent_dtype,
    to_device,
    to_host,
)
from acpc_server.errors import FailedPrecondition
from acpc_server.models import FrozenWorldModel, with_proprio
from acpc_server.numerics import PIECE_BYTES, to_model_input
from acpc_server.scheduling import Priority, RequestContext

T = TypeVar("T")
U = TypeVar("U")
NO_VIEWS = PerturbationSet(())
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


@dataclass(frozen=True)
class Bench:
    """A job's means of measurement.

    Attributes:
        anchors: What it measures on; their history may be longer than the one measured.
    """

    engine: DeviceClient
    checkpoint: CachedCheckpoint
    anchors: Anchors
    mode: NumericMode
    context: RequestContext

    @property
    def model(self) -> FrozenWorldModel:
        """The checkpoint's model."""
        return self.checkpoint.model

    def blocks(self, history: int, horizon: int) -> np.ndarray:
        """Recorded blocks from the newest ``history`` frames on, (n, h + H - 1, block width)."""
        now = self.anchors.history
        return self.anchors.action_blocks[:, now - history : now + horizon - 1]

    def window_blocks(self, history: int, horizon: int) -> np.ndarray:
        """Recorded blocks that leave every frame of a window, (n, h + F, block width).

        Those of the windows that a dataset's anchors were drawn from; of a stored set, which has
        them, as many as the released code's windows have.
        """
        if self.anchors.window_blocks is not None:
            return self.anchors.window_blocks
        return self.blocks(history, released_future_frames(horizon) + 1)

    def pieces(
        self, start: int, stop: int, latents: int, most: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Cut anchors [start, stop) into runs whose latents, so many of each, are held at a time.

        Of at most ``most`` anchors.
        """
        size = held_rows(self.model.card, latents)
        size = size if most is None else min(size, most)
        return ((first, min(first + size, stop)) for first in range(start, stop, size))

    def encode(
        self,
        start: int,
        stop: int,
        *,
        history: int,
        future: Sequence[int] = (),
        views: PerturbationSet = NO_VIEWS,
    ) -> EncodedAnchors:
        """Encode the newest ``history`` frames, their views and some future frames of anchors.

        Nothing is cached, and calls are cut by the job's shape alone. Raises FailedPrecondition:
        The frames are gone or others, a plug-in perturbation breaks its promise, or the checkpoint
        does not repeat itself; Cancelled, Unavailable, ResourceExhausted: From the engine.
        """
        now = self.anchors.history
        kept = [*range(now - history, now), *(now + step for step in future)]
        return _Encoding(self, kept, history, views).encode(start, stop)

    def rollout(self, histories: Tensor, blocks: Tensor) -> Tensor:
        """Predictions (..., H, dim) of histories (..., h, dim) under blocks (..., h + H - 1, w).

        Leading axes must broadcast.
        """
        shapes = histories.shape[:-2], blocks.shape[:-2]
        leading = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
        latents = self.engine.rollout(
            self.model,
            histories.expand(*leading, -1, -1).reshape(-1, *histories.shape[-2:]),
            blocks.expand(*leading, -1, -1).reshape(-1, *blocks.shape[-2:]),
            self.context,
            self.mode,
        )
        return latents.reshape(*leading, *latents.shape[1:])


@dataclass(eq=False)
class _Encoding:
    """Encodes ``kept`` frames of a bench's anchors, and views of the first ``history`` of them.

    While the device computes a call's worth of frames, those of the next are read and drawn.
    """

    bench: Bench
    kept: Sequence[int]
    history: int
    views: PerturbationSet

    def __post_init__(self) -> None:
        self._distinct = distinct_views(self.views)
        self._view_count = len(self._distinct)

    def encode(self, start: int, stop: int) -> EncodedAnchors:
        """Latents of anchors [start, stop)."""
        bench, model = self.bench, self.bench.model
        engine, size = bench.engine, model.card.image_size
        frames = len(self.kept) + self._view_count * self.history
        call = frames_per_call(engine.device.type, Priority.JOB, model.card, size, size)
        group = max(1, call // frames)  # whose frames fill about one device call
        groups = [range(x, min(x + group, stop)) for x in range(start, stop, group)]
        # Runs of whole device calls, of which few are held at a time.
        bytes_each = 3 * size * size * latent_dtype(bench.mode).itemsize
        step = call * max(1, PIECE_BYTES // (call * bytes_each))
        pieces = [
            (group, range(x, min(x + step, len(group) * frames)))
            for group in groups
            for x in range(0, len(group) * frames, step)
        ]
        made = self._pieces(pieces)
        latents, same = [], []
        with closing(prepared_ahead(lambda _: next(made), pieces)) as inputs:
            for piece, alike in inputs:
                latents.append(engine.encode(model, piece, bench.context, bench.mode))
                same.append(to_host(alike))  # after the encoder: nothing more waits
        each = torch.split(torch.cat(latents), [len(group) * frames for group in groups])
        alike_each = torch.split(torch.cat(same), [len(x) * self._view_count for x in groups])
        parts = [*map(self._sorted, groups, each, alike_each)]
        clean, views = (torch.cat(part) for part in zip(*parts, strict=True))
        if model.card.proprio_dim:
            rows = bench.anchors.read("proprio", start, stop)[:, list(self.kept)]
            given = torch.from_numpy(rows)
            slots = engine.embed_proprio(model, given, bench.context, bench.mode)
            own = slots[:, None, : self.history].expand(*views.shape[:3], -1)
            clean, views = with_proprio(clean, slots), with_proprio(views, own)
        return EncodedAnchors(clean, views)

    def _pieces(self, pieces: Sequence[tuple[range, range]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Make pieces of the frames of groups: their kept ones, then those of their views.

        Yields with each, bool, which of the views that begin in it equal their history.
        """
        bench, h = self.bench, self.history
        dtype, device = latent_dtype(bench.mode), bench.engine.device
        for group, cut in pieces:
            kept = len(group) * len(self.kept)
            if not cut.start:
                with bench.context.phase("read"):
                    clean = read_inputs(bench.anchors, group, self.kept, bench.model, dtype, device)
            if not self._distinct:
                yield clean.flatten(0, 1)[cut.start : cut.stop], torch.empty(0, dtype=torch.bool)
                continue
            first, last = (max(0, edge - kept) for edge in (cut.start, cut.stop))
            # A view that a cut runs through is made for either piece.
            places = range(first // h, -(-last // h))
            draws = [self._draw(group, place) for place in places]
            views = self._views(group, draws, clean[:, :h])
            begun = -(-first // h) - places.start
            own = [clean[draw.history, :h] for draw in draws[begun:]]
            same = unchanged(views[begun:], own)
            of_views = views.flatten(0, 1)[first - places.start * h : last - places.start * h]
            yield torch.cat([clean.flatten(0, 1)[cut.start : cut.stop], of_views]), same

    def _draw(self, group: range, place: int) -> Draw:
        """Return a view of a group's anchors, by its place among all, anchor-major."""
        row, view = divmod(place, self._view_count)
        plan = replace(self.views, anchor=int(self.bench.anchors.anchor_ids[group[row]]))
        return Draw(row, plan, self._distinct[view])

    def _views(self, group: range, draws: Sequence[Draw], histories: Tensor) -> Tensor:
        """Draw or read views of histories (n, h, 3, height, width) of a group's anchors."""
        anchors, context = self.bench.anchors, self.bench.context
        views = histories.new_empty(len(draws), *histories.shape[1:])
        drawn: list[int] = []
        alike = itertools.groupby(
            range(len(draws)), lambda place: (draws[place].history, draws[place].view.spec_index)
        )
        for (history, spec_index), run in alike:
            spec, places = self.views.specs[spec_index], [*run]
            if isinstance(spec, GivenViews):
                which, row = [draws[place].view.draw for place in places], group[history]
                with context.phase("read"):
                    views[places] = given_inputs(anchors, row, spec, which, histories[history])
            else:
                drawn += places
        if drawn:
            with context.phase("draw"), self.bench.engine.drawing(0.0, context) as turn:
                asked = [draws[place] for place in drawn]
                views[drawn] = torch.stack(draw_views(histories, asked, turn))
        return views

    def _sorted(self, group: range, latents: Tensor, alike: Tensor) -> tuple[Tensor, Tensor]:
        """Sort a group's latents: kept frames (n, kept, dim), views (n, views, h, dim)."""
        n, kept, dim = len(group), len(self.kept), latents.shape[-1]
        clean_latents = latents[: n * kept].reshape(n, kept, dim)
        view_latents = latents[n * kept :].reshape(n, self._view_count, self.history, dim)
        alike = alike.view(n, self._view_count)
        if alike.any():
            history = clean_latents[:, None, : self.history].expand_as(view_latents)
            given, again = history[alike], view_latents[alike]
            apart, length = (again - given).norm(dim=-1), given.norm(dim=-1)
            if bool((apart > REPEAT_TOLERANCE[self.bench.mode] * length).any()):
                raise FailedPrecondition(
                    f"the checkpoint encodes equal frames up to {float(apart.max()):g} apart, so "
                    "it does not repeat itself; check that it is deterministic when it is not "
                    "trained"
                )
            view_latents = torch.where(alike[..., None, None], history, view_latents)
        return clean_latents, view_latents


def read_inputs(
    anchors: Anchors,
    rows: range,
    kept: Sequence[int],
    model: FrozenWorldModel,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """Read kept frames as model input, (n, kept, 3, height, width), normalised on the device.

    Few are at their own size at a time, but all of one anchor, whose sha256 covers them.
    """
    run = range(kept[0], kept[-1] + 1)
    which = slice(run.start, run.stop) if [*kept] == [*run] else [*kept]  # that copies nothing
    one = (anchors.history + anchors.horizon) * 3 * math.prod(anchors.frame_size)
    step, size = max(1, PIECE_BYTES // one), model.card.image_size
    parts = [
        _inputs(anchors.read_frames(at, min(at + step, rows.stop))[:, which], size, dtype, device)
        for at in range(rows.start, rows.stop, step)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def given_inputs(
    anchors: Anchors, row: int, spec: GivenViews, draws: Sequence[int], like: Tensor
) -> Tensor:
    """Read given views of an anchor as model input, (draws, h, 3, height, width).

    ``like`` is the history (h, 3, height, width), whose size, device and dtype they get.
    """
    raw = anchors.read(f"{VIEWS}{spec.group}", row, row + 1)[0]
    size = min(like.shape[2:])
    return _inputs(raw[list(draws), -len(like) :], size, like.dtype, like.device)


def _inputs(
    frames: np.ndarray, size: int, dtype: torch.dtype, device: torch.device | None
) -> Tensor:
    """Frames (..., height, width, 3) as model input (..., 3, height, width)."""
    raw = torch.from_numpy(np.ascontiguousarray(frames))
    if device is not None:
        (raw,) = to_device(device, torch.uint8, raw)
    inputs = to_model_input(raw.flatten(0, -4), size, dtype)
    return inputs.reshape(*raw.shape[:-3], *inputs.shape[1:])
