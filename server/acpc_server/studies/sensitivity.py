"""Rows of the sensitivity study; App. "Local Sensitivity under Gaussian Noise" in the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from acpc.contract import SensitivityStudy
from torch import Tensor

from acpc_server.encoding import read_inputs
from acpc_server.engine import frames_per_call
from acpc_server.numerics import horizon_weights, sensitivity
from acpc_server.scheduling import Priority, RequestContext
from acpc_server.studies.measurement import Bench, Measurement, Table

JACOBIAN, DIFFERENCE = 0, 1
Draw: TypeAlias = Callable[..., Tensor]
"""A probe of a shape, by seed, anchor and probe."""


class SensitivityMeasurement(Measurement[SensitivityStudy]):
    """Squared norms of the Jacobian of encoder and rollout along random directions."""

    def __init__(self, bench: Bench, study: SensitivityStudy) -> None:
        super().__init__(bench, study)
        self._weights = horizon_weights((), study.horizon)

    def measure(self, start: int, stop: int, context: RequestContext) -> Table:
        """Rows of anchors [start, stop): anchor-major, then by method, then by probe."""
        bench, h, probes = self._bench, self._history, self._study.probes
        now, n = bench.anchors.history, stop - start
        model = bench.checkpoint.model
        clean = read_inputs(bench.anchors, range(start, stop), range(now - h, now), model)
        blocks = torch.from_numpy(bench.blocks(h, self._study.horizon)[start:stop])
        still = self._predict(clean, blocks, context)  # (n, H, dim)
        norms: tuple[list[Tensor], list[Tensor]] = [], []
        # Probes are as large as the history: only a device call's worth is there at a time.
        for rows in torch.split(torch.arange(n * probes), self._rows_per_call()):
            anchor = rows // probes
            ids = bench.anchors.anchor_ids[start:stop][anchor.numpy()]
            keys = list(zip(ids.tolist(), (rows % probes).tolist(), strict=True))
            frames, actions = clean[anchor], blocks[anchor]
            norms[JACOBIAN].append(self._jacobian(frames, actions, keys, context))
            norms[DIFFERENCE].append(
                self._difference(frames, actions, still[anchor], keys, context)
            )
        by_method = torch.stack([torch.cat(part).reshape(n, probes) for part in norms], dim=1)
        methods = np.repeat(np.array([JACOBIAN, DIFFERENCE], np.int64), probes)
        columns = {
            "anchor": np.repeat(bench.anchors.anchor_ids[start:stop], 2 * probes),
            "method": np.tile(methods, n),
            "probe": np.tile(np.arange(probes), 2 * n),
            "squared_norm": by_method.flatten().numpy(),
        }
        return Table(columns)

    def _rows_per_call(self) -> int:
        size = self._bench.checkpoint.model.card.image_size
        frames = frames_per_call(self._bench.engine.device.type, Priority.JOB, size, size)
        return max(1, frames // self._history)

    def _directions(self, draw: Draw, frames: Tensor, keys: Sequence[tuple[int, int]]) -> Tensor:
        """One direction of the model input for each anchor and probe, like ``frames``."""
        probes = [
            draw(frames.shape[1:], seed=self._study.seed, anchor=anchor, probe=probe)
            for anchor, probe in keys
        ]
        return sensitivity.pixel_direction(torch.stack(probes))

    def _jacobian(
        self,
        frames: Tensor,
        blocks: Tensor,
        keys: Sequence[tuple[int, int]],
        context: RequestContext,
    ) -> Tensor:
        """Hutchinson's estimates, one a row."""
        directions = self._directions(sensitivity.rademacher_probe, frames, keys)
        model = self._bench.checkpoint.model
        tangents = self._bench.engine.rollout_tangent(model, frames, directions, blocks, context)
        return sensitivity.squared_norm(tangents, self._weights)

    def _difference(
        self,
        frames: Tensor,
        blocks: Tensor,
        still: Tensor,
        keys: Sequence[tuple[int, int]],
        context: RequestContext,
    ) -> Tensor:
        """Finite differences from the rollouts ``still`` of unmoved frames, one a row."""
        step = self._study.step
        moved = frames + step * self._directions(sensitivity.gaussian_probe, frames, keys)
        rollouts = self._predict(moved, blocks, context)
        return sensitivity.finite_difference(still, rollouts, self._weights, step)

    def _predict(self, frames: Tensor, blocks: Tensor, context: RequestContext) -> Tensor:
        """Rollouts (n, H, dim) of histories (n, h, 3, height, width)."""
        bench = self._bench
        latents = bench.engine.encode(
            bench.checkpoint.model, frames.flatten(0, 1), context, bench.mode
        )
        return bench.rollout(latents.reshape(*frames.shape[:2], -1), blocks, context)
