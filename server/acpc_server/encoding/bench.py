"""What a job measures with: a checkpoint, its anchors, and the arithmetic of the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from acpc.contract import NumericMode, PerturbationSet, released_future_frames
from torch import Tensor

from acpc_server.data import Anchors
from acpc_server.encoding.anchors import NO_VIEWS, AnchorEncoder, EncodedAnchors
from acpc_server.engine import CachedCheckpoint, DeviceClient, held_rows
from acpc_server.models import FrozenWorldModel
from acpc_server.scheduling import RequestContext


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
        first, wanted = self.anchors.history - history, history + released_future_frames(horizon)
        return self.anchors.action_blocks[:, first : first + wanted]

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

        Raises as :meth:`AnchorEncoder.encode`.
        """
        now = self.anchors.history
        kept = [*range(now - history, now), *(now + step for step in future)]
        encoder = AnchorEncoder(self.engine, self.model, self.mode, self.anchors, kept, views)
        return encoder.encode(start, stop, self.context)

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
