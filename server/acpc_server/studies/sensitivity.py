"""Rows of the sensitivity study; App. "Local Sensitivity under Gaussian Noise" in the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from acpc.contract import DIRECTIONS, NumericMode, SensitivityStudy
from torch import Tensor

from acpc_server.encoding import Bench, check_predictions, read_inputs
from acpc_server.engine import frames_per_call
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.models import ModelCard
from acpc_server.numerics import horizon_weights, local
from acpc_server.scheduling import Priority
from acpc_server.studies.measurement import Needs, StudyMeasurement, StudyTable
from acpc_server.studies.spec import StudySpec

JACOBIAN, DIFFERENCE = 0, 1
Draw: TypeAlias = Callable[..., Tensor]  # a probe of a shape, by seed, anchor and probe


class SensitivityMeasurement(StudyMeasurement[SensitivityStudy]):
    """Squared norms of the Jacobian of encoder and rollout along random or given directions."""

    def __init__(self, bench: Bench, study: SensitivityStudy) -> None:
        super().__init__(bench, study)
        self._weights = horizon_weights((), study.horizon)

    repeated = "probes"

    @classmethod
    def check(cls, spec: StudySpec, card: ModelCard) -> None:
        """Derivatives are of pixels alone, in float32; there are no views to check."""
        if spec.numeric_mode is not NumericMode.FP32:
            raise InvalidArgument(
                "numeric_mode",
                f"found {spec.numeric_mode!s}, wanted fp32; a sensitivity study's derivatives are "
                "computed in float32 alone",
            )
        if card.proprio_dim:
            raise InvalidArgument(
                "sensitivity",
                "a sensitivity study takes no checkpoint whose frames come with proprioception",
            )

    @classmethod
    def needs(cls, study: SensitivityStudy, card: ModelCard) -> Needs:
        """Latents of history and rollout, with tangents and moved twins; 4 columns of 2 methods."""
        held = 4 * (card.history + study.horizon)
        return Needs(card.history, study.horizon, held, 8 * 4 * 2 * study.probes)

    def measure(self, start: int, stop: int) -> StudyTable:
        """Rows of anchors [start, stop): anchor-major, then by method, then by probe."""
        bench, h, probes = self._bench, self._history, self._study.probes
        now, n = bench.anchors.history, stop - start
        model, context = bench.model, bench.context
        with context.phase("read"):
            clean = read_inputs(bench.anchors, range(start, stop), range(now - h, now), model)
        blocks = torch.from_numpy(bench.blocks(h, self._study.horizon)[start:stop])
        still = self._predict(clean, blocks)  # (n, H, dim)
        norms: tuple[list[Tensor], list[Tensor]] = [], []
        # Probes are as large as the history: only a device call's worth is there at a time.
        size, step = model.card.image_size, self._study.step
        call = frames_per_call(bench.engine.device.type, Priority.JOB, model.card, size, size)
        for rows in torch.split(torch.arange(n * probes), max(1, call // h)):
            anchor = rows // probes
            with context.phase("draw"):
                signs, normals = self._directions(start + anchor, rows % probes, clean.shape[2:])
            frames, actions = clean[anchor], blocks[anchor]
            # Hutchinson's estimates, then differences from the rollouts of unmoved frames.
            tangents = bench.engine.rollout_tangent(model, frames, signs, actions, context)
            check_predictions(tangents)
            norms[JACOBIAN].append(local.squared_norm(tangents, self._weights))
            moved = self._predict(frames + step * normals, actions)
            difference = local.finite_difference(still[anchor], moved, self._weights, step)
            norms[DIFFERENCE].append(difference)
        by_method = torch.stack([torch.cat(part).reshape(n, probes) for part in norms], dim=1)
        methods = np.repeat(np.array([JACOBIAN, DIFFERENCE], np.int64), probes)
        columns = {
            "anchor": np.repeat(bench.anchors.anchor_ids[start:stop], 2 * probes),
            "method": np.tile(methods, n),
            "probe": np.tile(np.arange(probes), 2 * n),
            "squared_norm": by_method.flatten().numpy(),
        }
        return StudyTable(columns)

    def _directions(
        self, anchors: Tensor, probes: Tensor, image: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Directions of the model input for each anchor and probe, for either method."""
        if self._study.directions:
            given = local.pixel_direction(self._given(anchors, probes))
            return given, given
        ids = self._bench.anchors.anchor_ids[anchors.numpy()].tolist()
        keys = list(zip(ids, probes.tolist(), strict=True))
        shape, seed = (self._history, *image), self._study.seed

        def drawn(draw: Draw) -> Tensor:
            found = [draw(shape, seed=seed, anchor=anchor, probe=probe) for anchor, probe in keys]
            return local.pixel_direction(torch.stack(found))

        return drawn(local.rademacher_probe), drawn(local.gaussian_probe)

    def _given(self, anchors: Tensor, probes: Tensor) -> Tensor:
        """The set's own directions; rows are of consecutive anchors.

        Raises FailedPrecondition: Nothing is left of one in the model's history and image size.
        """
        first, last = int(anchors[0]), int(anchors[-1])
        name = f"{DIRECTIONS}{self._study.directions}"
        read = self._bench.anchors.read(name, first, last + 1)
        rows = read[(anchors - first).numpy(), probes.numpy()][:, -self._history :]
        size = self._bench.model.card.image_size
        found = local.given_probe(torch.from_numpy(rows), size)
        lost = (~found.flatten(1).any(dim=1)).nonzero().flatten()
        if len(lost):
            anchor, probe = int(anchors[lost[0]]), int(probes[lost[0]])
            raise FailedPrecondition(
                f"direction {probe} of anchor {anchor} in the group {self._study.directions!r} has "
                f"nothing left in the newest {self._history} frames at {size} pixels; upload "
                "directions that the checkpoint can see",
                reason="VANISHED_DIRECTION",
            )
        return found

    def _predict(self, frames: Tensor, blocks: Tensor) -> Tensor:
        """Rollouts (n, H, dim) of histories (n, h, 3, height, width)."""
        bench = self._bench
        latents = bench.engine.encode(bench.model, frames.flatten(0, 1), bench.context, bench.mode)
        return self.rollout(latents.reshape(*frames.shape[:2], -1), blocks)
