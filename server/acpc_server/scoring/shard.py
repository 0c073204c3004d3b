"""Measures one checkpoint on a shard of anchors, and packs the result for the job record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from acpc.contract import PerturbationSet
from torch import Tensor

from acpc_server.data import Anchors
from acpc_server.encoding import AnchorEncoder, distinct_views
from acpc_server.engine import DeviceEngine, held_rows
from acpc_server.jobs import pack, unpack
from acpc_server.models import FrozenWorldModel, ModelCard
from acpc_server.numerics import consistency, screening
from acpc_server.scheduling import RequestContext
from acpc_server.scoring.spec import ScoreSpec

# Coordinates of an anchor's latents up to which its record keeps them, 64 KiB; wider ones are
# encoded again where they are wanted, which takes h + 1 frames of M h + h + H.
KEPT_LATENTS = 2**14


@dataclass(frozen=True)
class ShardRecord:
    """What the summaries need of a shard of n anchors.

    Attributes:
        draw_radius: Normalised radius R_i^(m) of every draw, float64 (n, M).
        horizon_radius: Its mean over draws at each of the spec's horizons, float64 (n, horizons).
        step_radius: Normalised distance after each predicted step, mean over draws, float64 (n, H).
        motion_scale: Clean-motion scale s_i, float64 (n,).
        history_latents: Clean history embeddings, float32 (n, h, dim); (n, h, 0) where they are
            not kept.
        endpoint_latents: Embedding of the H-th observed future frame, float32 (n, dim) or (n, 0).
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
        names = [field.name for field in fields(cls)]
        return cls(**{n: np.concatenate([getattr(part, n) for part in shards]) for n in names})

    @classmethod
    def measured(
        cls, spec: ScoreSpec, steps: Tensor, observed: Tensor, history: Tensor
    ) -> ShardRecord:
        """Reduces the measurements of a shard to what is kept.

        Horizons below the spec's have uniform weights and their own motion scale. ``steps`` is the
        clean-perturbed distance per draw and predicted step, float64 (n, M, H), ``observed`` the
        embeddings u_0..u_H, (n, H + 1, dim), ``history`` those of the clean history, (n, h, dim).
        """
        kept = observed.shape[-1] if keeps_latents(observed.shape[-1], history.shape[1]) else 0
        moves = screening.transitions(observed)  # (n, H)
        scale = screening.motion_scale(moves)
        radii: dict[int, Tensor] = {}
        for horizon in spec.horizons():
            full = horizon == spec.protocol.horizon
            weights = consistency.horizon_weights(spec.protocol.weights if full else (), horizon)
            acpc = consistency.acpc(steps[..., :horizon], weights)  # (n, M)
            own = scale if full else screening.motion_scale(moves[:, :horizon])
            radii[horizon] = screening.normalised_radius(acpc, own)
        return cls(
            draw_radius=radii[spec.protocol.horizon].numpy(),
            horizon_radius=torch.stack([r.mean(dim=1) for r in radii.values()], dim=1).numpy(),
            step_radius=screening.step_radius(steps, scale).numpy(),
            motion_scale=scale.numpy(),
            history_latents=history[..., :kept].clone().numpy(),
            endpoint_latents=observed[:, -1, :kept].clone().numpy(),
        )


def keeps_latents(width: int, history: int) -> bool:
    """Whether the record of an anchor keeps its latents, of its history and its endpoint."""
    return (history + 1) * width <= KEPT_LATENTS


def latents_held(card: ModelCard, spec: ScoreSpec) -> int:
    """Latents of one anchor that are held at a time, of its frames and views and predicted ones."""
    views = PerturbationSet((spec.perturbation,), spec.protocol.draws, spec.protocol.seed)
    return (1 + len(distinct_views(views))) * (card.history + spec.protocol.horizon)


def score_shard(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    anchors: Anchors,
    spec: ScoreSpec,
    rows: tuple[int, int],
    context: RequestContext,
) -> ShardRecord:
    """Measure anchors ``rows``, [start, stop): each frame is encoded once, views rolled forward.

    A deterministic shift is evaluated once and its distances repeated over the M draws.
    """
    history, protocol = anchors.history, spec.protocol
    encoder = AnchorEncoder(
        engine,
        model,
        spec.numeric_mode,
        anchors,
        history=history,
        future=range(protocol.horizon),
        views=PerturbationSet((spec.perturbation,), protocol.draws, protocol.seed),
    )
    size = held_rows(model.card, latents_held(model.card, spec))
    runs = [(start, min(start + size, rows[1])) for start in range(*rows, size)]
    parts = [_measured(encoder, engine, model, anchors, spec, run, context) for run in runs]
    return ShardRecord.concatenate(parts) if len(parts) > 1 else parts[0]


def _measured(
    encoder: AnchorEncoder,
    engine: DeviceEngine,
    model: FrozenWorldModel,
    anchors: Anchors,
    spec: ScoreSpec,
    rows: tuple[int, int],
    context: RequestContext,
) -> ShardRecord:
    """Those anchors of a shard whose latents are held at a time."""
    history, protocol = anchors.history, spec.protocol
    latents = encoder.encode(*rows, context)
    clean = latents.clean  # (n, h + H, dim)
    views = torch.cat([clean[:, None, :history], latents.views], dim=1)  # (n, 1 + distinct, h, dim)
    blocks = torch.from_numpy(anchors.action_blocks[slice(*rows)])  # (n, h + H - 1, width)
    blocks = blocks[:, None].expand(-1, views.shape[1], -1, -1)
    rollouts = engine.rollout(
        model, views.flatten(0, 1), blocks.flatten(0, 1), context, spec.numeric_mode
    )
    rollouts = rollouts.reshape(*views.shape[:2], *rollouts.shape[1:])  # (n, 1 + distinct, H, dim)
    steps = consistency.step_distances(rollouts[:, :1], rollouts[:, 1:])
    repeats = protocol.draws // steps.shape[1]
    return ShardRecord.measured(
        spec,
        steps.repeat_interleave(repeats, dim=1),  # (n, M, H)
        clean[:, history - 1 :],
        clean[:, :history],
    )
