"""Rows of the error-drift study; Sec. "ACPC and Prediction-Error Change" in the paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from acpc.contract import DestroyedActions, DriftStudy, Identity
from torch import Tensor

from acpc_server.encoding import distinct_views
from acpc_server.numerics import consistency
from acpc_server.scheduling import RequestContext
from acpc_server.studies import controls
from acpc_server.studies.measurement import Bench, Measurement, Table, view_columns
from acpc_server.studies.spec import views_of

CONTROLS = ("acpc_zeroed", "acpc_swapped", "acpc_shuffled")


class DriftMeasurement(Measurement[DriftStudy]):
    """Encodes anchors, their views and their future, and rolls out under four action sequences."""

    def __init__(self, bench: Bench, study: DriftStudy) -> None:
        super().__init__(bench, study)
        self._weights = consistency.horizon_weights((), study.horizon)
        # The unchanged view comes last and takes part in everything.
        self._plan = replace(views_of(study), specs=(*study.shifts, Identity()))
        trajectories = bench.anchors.trajectory_ids
        self._groups = controls.trajectory_groups(trajectories, study.groups)
        if study.destroyed is DestroyedActions.WINDOW:
            self._blocks = bench.window_blocks(self._history, study.horizon)
        else:
            self._blocks = bench.blocks(self._history, study.horizon)
            self._partners = controls.swapped_partners(trajectories, study.seed)

    def measure(self, start: int, stop: int, context: RequestContext) -> Table:
        """Rows of anchors [start, stop), anchor-major.

        Raises RuntimeError: A row breaks Prop. target-free-error-drift, or the unchanged view is
        changed: the code is wrong.
        """
        study, bench, h = self._study, self._bench, self._history
        encoder = bench.encoder(h, range(study.horizon), self._plan)
        latents = encoder.encode(start, stop, context)
        history, observed = latents.clean[:, :h], latents.clean[:, None, h:]
        histories = torch.cat([history[:, None], latents.views], dim=1)  # (n, 1 + views, h, dim)
        blocks = torch.from_numpy(self._actions(range(start, stop)))  # (n, 4, h + H - 1, width)
        recorded, *destroyed = (
            bench.rollout(histories, blocks[:, None, kind], context) for kind in range(4)
        )  # each (n, 1 + views, H, dim)
        steps = consistency.step_distances(recorded[:, :1], recorded[:, 1:])  # (n, views, H)
        acpc = consistency.acpc(steps, self._weights)  # (n, views)
        errors = consistency.prediction_error(recorded, observed, self._weights)
        clean_error, perturbed_error = errors[:, :1].expand_as(acpc), errors[:, 1:]
        drift = consistency.error_drift(clean_error, perturbed_error)
        if acpc[:, -1].any():
            raise RuntimeError(
                f"the unchanged view has an ACPC of up to {float(acpc[:, -1].max())}, not zero"
            )
        bound = consistency.drift_bound(
            acpc,
            clean_error,
            perturbed_error,
            horizon=study.horizon,
            dim=bench.checkpoint.model.card.latent_dim,
        )
        if bool((drift > bound).any()):
            raise RuntimeError("an error drift exceeds ACPC, against Prop. target-free-error-drift")
        measured = {
            "encoder_shift": consistency.encoder_shift(history[:, None], latents.views),
            "acpc_one_step": steps[..., 0],
            "acpc": acpc,
            **{
                name: self._acpc(rollouts)
                for name, rollouts in zip(CONTROLS, destroyed, strict=True)
            },
            "clean_error": clean_error,
            "perturbed_error": perturbed_error,
            "drift": drift,
        }
        ids = bench.anchors.anchor_ids[start:stop]
        views = distinct_views(self._plan)[:-1]
        named = view_columns(ids, self._plan, views)
        columns = {
            "anchor": named.pop("anchor"),
            "group": np.repeat(self._groups[start:stop], len(views)),
            **named,
            **{name: values[:, :-1].flatten().numpy() for name, values in measured.items()},
        }
        return Table(columns, {"identity_acpc": acpc[:, -1].numpy()})

    def _acpc(self, rollouts: Tensor) -> Tensor:
        steps = consistency.step_distances(rollouts[:, :1], rollouts[:, 1:])
        return consistency.acpc(steps, self._weights)

    def _actions(self, rows: range) -> np.ndarray:
        study = self._study
        if study.destroyed is DestroyedActions.WINDOW:
            steps = self._history + study.horizon - 1
            return controls.destroyed_windows(self._blocks, rows, steps=steps, seed=study.seed)
        return controls.destroyed_actions(
            self._blocks,
            self._bench.anchors.anchor_ids,
            self._partners,
            rows,
            horizon=study.horizon,
            seed=study.seed,
        )
