"""Rows of the sensitivity study; App. "Local Sensitivity under Gaussian Noise" in the paper."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from acpc_server.diagnostics.encoding import anchor_groups, read_inputs
from acpc_server.diagnostics.studies.measurement import Bench, Measurement
from acpc_server.diagnostics.studies.plan import SensitivityStudy
from acpc_server.diagnostics.studies.table import Table
from acpc_server.engine import Ticket
from acpc_server.numerics import sensitivity
from acpc_server.numerics.consistency import horizon_weights

JACOBIAN, DIFFERENCE = 0, 1


class SensitivityMeasurement(Measurement):
    """Squared norms of the Jacobian of encoder and rollout along random directions.

    Args:
        bench: What to measure with.
        study: What to measure.
    """

    def __init__(self, bench: Bench, study: SensitivityStudy) -> None:
        self._bench = bench
        self._study = study
        self._history = bench.checkpoint.model.card.history
        self._weights = horizon_weights((), study.horizon)

    def measure(self, start: int, stop: int, ticket: Ticket) -> Table:
        """Rows of anchors [start, stop): anchor-major, then by method, then by probe."""
        bench, probes = self._bench, self._study.probes
        model, frames = bench.checkpoint.model, self._history * (1 + probes)
        groups = anchor_groups(bench.engine, model, start, stop, frames)
        norms = torch.cat([self._measure_group(group, ticket) for group in groups])  # (n, 2, K)
        n = len(norms)
        methods = np.repeat(np.array([JACOBIAN, DIFFERENCE], np.int64), probes)
        columns = {
            "anchor": np.repeat(bench.anchors.anchor_ids[start:stop], 2 * probes),
            "method": np.tile(methods, n),
            "probe": np.tile(np.arange(probes), 2 * n),
            "squared_norm": norms.flatten().numpy(),
        }
        return Table(columns)

    def _measure_group(self, group: range, ticket: Ticket) -> Tensor:
        bench, study, h = self._bench, self._study, self._history
        now = bench.anchors.history
        clean = read_inputs(bench.anchors, group, range(now - h, now), bench.checkpoint.model)
        blocks = torch.from_numpy(bench.blocks(h, study.horizon)[group.start : group.stop])
        signs, normals = (
            torch.stack(
                [
                    draw(clean.shape[1:], seed=study.seed, anchor=int(anchor), probe=probe)
                    for anchor in bench.anchors.anchor_ids[group.start : group.stop]
                    for probe in range(study.probes)
                ]
            ).reshape(len(group), study.probes, *clean.shape[1:])
            for draw in (sensitivity.rademacher_probe, sensitivity.gaussian_probe)
        )  # each (n, K, h, 3, height, width)
        norms = [
            self._jacobian(clean, signs, blocks, ticket),
            self._difference(clean, normals, blocks, ticket),
        ]
        return torch.stack(norms, dim=1)  # (n, 2, K)

    def _jacobian(self, clean: Tensor, probes: Tensor, blocks: Tensor, ticket: Ticket) -> Tensor:
        """Hutchinson's estimates, one a probe, (n, K)."""
        tangents = self._bench.engine.rollout_tangent(
            self._bench.checkpoint.model,
            clean[:, None].expand_as(probes).flatten(0, 1),
            sensitivity.pixel_direction(probes).flatten(0, 1),
            blocks[:, None].expand(-1, probes.shape[1], -1, -1).flatten(0, 1),
            ticket,
        )
        return sensitivity.squared_norm(tangents, self._weights).reshape(probes.shape[:2])

    def _difference(self, clean: Tensor, probes: Tensor, blocks: Tensor, ticket: Ticket) -> Tensor:
        """Finite differences, one a probe, (n, K)."""
        bench, step = self._bench, self._study.step
        moved = clean[:, None] + step * sensitivity.pixel_direction(probes)
        frames = torch.cat([clean[:, None], moved], dim=1)  # (n, 1 + K, h, 3, height, width)
        latents = bench.engine.encode(
            bench.checkpoint.model, frames.flatten(0, 2), ticket, bench.mode
        )
        histories = latents.reshape(*frames.shape[:3], -1)  # (n, 1 + K, h, dim)
        rollouts = bench.rollout(histories, blocks[:, None], ticket)
        return sensitivity.finite_difference(rollouts[:, :1], rollouts[:, 1:], self._weights, step)
