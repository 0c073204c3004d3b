"""Rows of the local-geometry study; App. "Local-Geometry Case-Study Definitions" in the paper."""

from __future__ import annotations

import numpy as np
import torch
from acpc.contract import GeometryStudy

from acpc_server.encoding import Bench, distinct_views
from acpc_server.models import ModelCard
from acpc_server.numerics import local_geometry, screening
from acpc_server.studies.measurement import (
    Needs,
    StudyMeasurement,
    StudyTable,
    rollout_latents,
    views_each,
)
from acpc_server.studies.spec import views_of

SPACES = ("encoder", "rollout")


class GeometryMeasurement(StudyMeasurement[GeometryStudy]):
    """Clean and perturbed representations at the encoder and after the rollout.

    The encoder space is the projected embedding of the newest history frame, the rollout space the
    H-th predicted one, so that both are the space in which planner costs live.
    """

    def __init__(self, bench: Bench, study: GeometryStudy) -> None:
        super().__init__(bench, study)
        self._plan = views_of(study)

    @classmethod
    def needs(cls, study: GeometryStudy, card: ModelCard) -> Needs:
        """The result: seven columns, representations of either space, and the observed frames."""
        observed = study.motion * (8 + 4 * card.latent_dim * (study.horizon + 1))
        spaces = 2 * 4 * card.latent_dim * (1 + views_each(study))
        held = rollout_latents(study, card)
        return Needs(card.history, study.horizon, held, 8 * 7 + spaces + observed)

    def measure(self, start: int, stop: int) -> StudyTable:
        """Representations of anchors [start, stop)."""
        bench, study = self._bench, self._study
        future = range(study.horizon) if study.motion else ()
        latents = bench.encode(start, stop, history=self._history, future=future, views=self._plan)
        clean = latents.clean[:, : self._history]
        histories = torch.cat([clean[:, None], latents.views], dim=1)
        blocks = torch.from_numpy(bench.blocks(self._history, study.horizon)[start:stop])
        rollouts = self.rollout(histories, blocks[:, None])  # (n, 1 + views, H, dim)
        found = {"encoder": histories[:, :, -1].numpy(), "rollout": rollouts[:, :, -1].numpy()}
        columns = {"anchor": bench.anchors.anchor_ids[start:stop]}
        arrays = {
            f"{space}_{part}": found[space][:, cut]
            for space in SPACES
            for part, cut in (("clean", 0), ("views", slice(1, None)))
        }
        if study.motion:
            observed = latents.clean[:, self._history - 1 :]  # (n, H + 1, dim)
            scale = screening.motion_scale(screening.transitions(observed))
            columns["motion_scale"], arrays["observed"] = scale.numpy(), observed.numpy()
        return StudyTable(columns, arrays)

    def conclude(self, table: StudyTable) -> StudyTable:
        """Radius, nearest neighbour and disjointness of every anchor among all anchors."""
        columns = dict(table.columns)
        for space in SPACES:
            clean, views = table.arrays[f"{space}_clean"], table.arrays[f"{space}_views"]
            # Copies: what comes from the record is read-only, and torch has no read-only tensors.
            geometry = local_geometry(torch.tensor(clean), torch.tensor(views))
            columns[f"{space}_radius"] = geometry.radius.numpy()
            columns[f"{space}_nearest"] = geometry.nearest.numpy()
            columns[f"{space}_disjoint"] = geometry.disjoint.numpy()
        distinct = distinct_views(self._plan)
        named = {
            "view_shift": np.array([view.spec_index for view in distinct], np.int64),
            "view_draw": np.array([view.draw for view in distinct], np.int64),
        }
        return StudyTable(columns, {**table.arrays, **named})
