"""The measurements of one checkpoint on a few anchors, and their form in the job record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acpc_server.data import Anchors
from acpc_server.diagnostics.packing import pack, unpack
from acpc_server.diagnostics.plan import ScorePlan
from acpc_server.diagnostics.views import PerturbationPlan, perturbed_views
from acpc_server.engine import DeviceEngine, Priority, Ticket
from acpc_server.engine.sizes import frames_per_call
from acpc_server.models import FrozenWorldModel
from acpc_server.numerics import consistency, screening
from acpc_server.numerics.pixels import to_model_input


@dataclass(frozen=True)
class ShardRecord:
    """What the summaries need of a shard of n anchors.

    Attributes:
        draw_radius: Normalised radius R_i^(m) of every draw, float64 (n, M).
        horizon_radius: Its mean over draws at each of the plan's horizons, float64 (n, horizons).
        step_radius: Normalised distance after each predicted step, mean over draws, float64 (n, H).
        motion_scale: Clean-motion scale s_i, float64 (n,).
        history_latents: Clean history embeddings, float32 (n, h, dim).
        endpoint_latents: Embedding of the H-th observed future frame, float32 (n, dim).
    """

    draw_radius: np.ndarray
    horizon_radius: np.ndarray
    step_radius: np.ndarray
    motion_scale: np.ndarray
    history_latents: np.ndarray
    endpoint_latents: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """The arrays, packed."""
        return {field.name: pack(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ShardRecord:
        """Inverse of :meth:`to_json`."""
        return cls(**{field.name: unpack(record[field.name]) for field in fields(cls)})

    @classmethod
    def concatenate(cls, shards: Sequence[ShardRecord]) -> ShardRecord:
        """All shards of a checkpoint as one record."""
        return cls(
            **{f.name: np.concatenate([getattr(s, f.name) for s in shards]) for f in fields(cls)}
        )

    @classmethod
    def measured(
        cls, plan: ScorePlan, steps: Tensor, observed: Tensor, history: Tensor
    ) -> ShardRecord:
        """Reduces the measurements of a shard to what is kept.

        Horizons below the plan's have uniform weights and their own motion scale.

        Args:
            plan: The job.
            steps: Clean-perturbed distance per draw and predicted step, float64 (n, M, H).
            observed: Embeddings u_0..u_H, of the last history frame and the observed future,
                float32 (n, H + 1, dim).
            history: Clean history embeddings, float32 (n, h, dim).
        """
        moves = screening.transitions(observed)  # (n, H)
        scale = screening.motion_scale_of(moves)
        radii: dict[int, Tensor] = {}
        for horizon in plan.horizons():
            full = horizon == plan.protocol.horizon
            weights = consistency.horizon_weights(plan.protocol.weights if full else (), horizon)
            acpc = consistency.acpc(steps[..., :horizon], weights)  # (n, M)
            own = scale if full else screening.motion_scale_of(moves[:, :horizon])
            radii[horizon] = screening.normalised_radius(acpc, own)
        return cls(
            draw_radius=radii[plan.protocol.horizon].numpy(),
            horizon_radius=torch.stack([r.mean(dim=1) for r in radii.values()], dim=1).numpy(),
            step_radius=screening.step_radius(steps, scale).numpy(),
            motion_scale=scale.numpy(),
            history_latents=history.numpy(),
            endpoint_latents=observed[:, -1].numpy(),
        )


class ShardScorer:
    """Encodes every frame of a shard once and rolls its views forward.

    Args:
        engine: Owner of the device.
        model: The checkpoint being scored.
        anchors: All anchors of the job.
        plan: The job.
    """

    def __init__(
        self, engine: DeviceEngine, model: FrozenWorldModel, anchors: Anchors, plan: ScorePlan
    ) -> None:
        self._engine = engine
        self._model = model
        self._anchors = anchors
        self._plan = plan
        self._draws = plan.protocol.draws if plan.perturbation.stochastic else 1
        self._window = anchors.history + anchors.horizon

    def score(self, start: int, stop: int, ticket: Ticket) -> ShardRecord:
        """Measure anchors [start, stop).

        A deterministic shift is evaluated once and its distances repeated over the M draws.
        """
        history = self._anchors.history
        latents = [self._encode(index, ticket) for index in self._groups(start, stop)]
        clean = torch.cat([c for c, _ in latents])  # (n, h + H, dim)
        perturbed = torch.cat([p for _, p in latents])  # (n, draws, h, dim)
        steps = self._step_distances(clean[:, :history], perturbed, start, stop, ticket)
        repeats = self._plan.protocol.draws // self._draws
        return ShardRecord.measured(
            self._plan,
            steps.repeat_interleave(repeats, dim=1),  # (n, M, H)
            clean[:, history - 1 :],
            clean[:, :history],
        )

    def _groups(self, start: int, stop: int) -> list[range]:
        """Runs of anchors whose frames fill about one device chunk."""
        size = self._model.card.image_size
        frames = self._window + self._draws * self._anchors.history
        group = max(
            1, frames_per_call(self._engine.device.type, Priority.JOB, size, size) // frames
        )
        return [range(s, min(s + group, stop)) for s in range(start, stop, group)]

    def _encode(self, group: range, ticket: Ticket) -> tuple[Tensor, Tensor]:
        card, window = self._model.card, self._window
        raw = torch.from_numpy(self._anchors.read_frames(group.start, group.stop))
        clean = to_model_input(raw.flatten(0, 1), card.image_size)
        clean = clean.reshape(len(group), window, *clean.shape[1:])
        # (n, h + H, 3, height, width)
        views = torch.stack(
            [
                perturbed_views(clean[row, : self._anchors.history], self._draw_plan(anchor))
                for row, anchor in enumerate(group)
            ]
        )  # (n, draws, h, 3, height, width)
        frames = torch.cat([clean.flatten(0, 1), views.flatten(0, 2)])
        latents = self._engine.encode(self._model, frames, ticket, self._plan.numeric_mode)
        of_clean, of_views = latents[: len(group) * window], latents[len(group) * window :]
        return (
            of_clean.reshape(len(group), window, -1),
            of_views.reshape(len(group), self._draws, self._anchors.history, -1),
        )

    def _draw_plan(self, anchor: int) -> PerturbationPlan:
        return PerturbationPlan(
            specs=(self._plan.perturbation,),
            draws=self._draws,
            seed=self._plan.protocol.seed,
            anchor=int(self._anchors.anchor_ids[anchor]),
        )

    def _step_distances(
        self, clean: Tensor, perturbed: Tensor, start: int, stop: int, ticket: Ticket
    ) -> Tensor:
        views = torch.cat([clean[:, None], perturbed], dim=1)  # (n, 1 + draws, h, dim)
        blocks = torch.from_numpy(self._anchors.action_blocks[start:stop])  # (n, h+H-1, width)
        blocks = blocks[:, None].expand(-1, views.shape[1], -1, -1)
        rollouts = self._engine.rollout(
            self._model, views.flatten(0, 1), blocks.flatten(0, 1), ticket, self._plan.numeric_mode
        )
        rollouts = rollouts.reshape(*views.shape[:2], *rollouts.shape[1:])
        # (n, 1 + draws, H, dim)
        return consistency.step_distances(rollouts[:, :1], rollouts[:, 1:])  # (n, draws, H)
