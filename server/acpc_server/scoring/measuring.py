"""Measures a checkpoint on a job's anchors, shard by shard, and packs the result for the record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import structlog
import torch
from acpc.contract import Fit, NumericMode, PartnerPast, PerturbationSet
from jaxtyping import Float64, Int64
from torch import Tensor

from acpc_server.data import Anchors
from acpc_server.encoding import Bench, distinct_views
from acpc_server.errors import ResourceExhausted
from acpc_server.jobs import pack, unpack
from acpc_server.models import ModelCard, Widens
from acpc_server.numerics import consistency, screening
from acpc_server.scoring.fit import check_fit, shard_errors
from acpc_server.scoring.spec import ScoreSpec

log = structlog.get_logger("acpc.scoring")
# Coordinates of an anchor's latents up to which its record keeps them, 64 KiB; wider ones are
# encoded again where they are wanted, which takes h + 1 frames of M h + h + H.
KEPT_LATENTS = 2**14
# Anchors rolled forward beside their partners at a time. Like a shard's size, part of what a score
# means: float32 matrix products depend on the batch in their last bits.
SEPARATED_ANCHORS = 512
# Rounding errors in a rounding floor: at a hundred floors raw IR is good to 1e-4.
FLOOR_ERRORS = 100
FP64_TO_FP32 = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class ShardRecord:
    """Measurements of a shard of n anchors, as the summaries need them.

    ``errors`` are those of :func:`shard_errors`, (n, H) each, as far as measured. Latents have a
    width of 0 where they are not kept.
    """

    draw_radius: np.ndarray  # normalised R_i^(m) of every draw, float64 (n, M)
    horizon_radius: np.ndarray  # its mean over draws at each of the spec's horizons (n, horizons)
    step_radius: np.ndarray  # normalised distance after each step, mean over draws, float64 (n, H)
    motion_scale: np.ndarray  # clean-motion scale s_i, float64 (n,)
    history_latents: np.ndarray  # of the clean history, float32 (n, h, dim)
    endpoint_latents: np.ndarray  # of the H-th observed future frame, float32 (n, dim)
    errors: Mapping[str, np.ndarray] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Pack the arrays."""
        arrays = {name: pack(getattr(self, name)) for name in _ARRAYS}
        return {**arrays, "errors": {name: pack(x) for name, x in self.errors.items()}}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ShardRecord:
        """Inverse of :meth:`to_json`."""
        errors = record.get("errors", {})  # absent in the records of older jobs
        arrays = {name: unpack(record[name]) for name in _ARRAYS}
        return cls(**arrays, errors={name: unpack(x) for name, x in errors.items()})

    @classmethod
    def concatenate(cls, shards: Sequence[ShardRecord]) -> ShardRecord:
        """Join all shards of a checkpoint."""
        arrays = {n: np.concatenate([getattr(part, n) for part in shards]) for n in _ARRAYS}
        errors = {
            name: np.concatenate(
                [part.errors.get(name, np.full_like(part.step_radius, np.nan)) for part in shards]
            )
            for name in dict.fromkeys(name for part in shards for name in part.errors)
        }
        return cls(**arrays, errors=errors)

    @classmethod
    def measured(
        cls, spec: ScoreSpec, steps: Tensor, observed: Tensor, history: Tensor
    ) -> ShardRecord:
        """Reduce the measurements of a shard to what is kept.

        Horizons below the spec's have uniform weights and their own motion scale. ``steps`` is the
        clean-perturbed distance per draw and predicted step, float64 (n, M, H), ``observed`` the
        embeddings u_0..u_H, (n, H + 1, dim), ``history`` those of the clean history, (n, h, dim).
        """
        width = observed.shape[-1]
        kept = width if (history.shape[1] + 1) * width <= KEPT_LATENTS else 0
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


_ARRAYS = tuple(x.name for x in fields(ShardRecord) if x.name != "errors")


def latents_held(card: ModelCard, spec: ScoreSpec) -> int:
    """Count the latents of one anchor held at a time, of its frames, views and predictions."""
    views = PerturbationSet((spec.shift,), spec.protocol.draws, spec.protocol.seed)
    return (1 + len(distinct_views(views))) * (card.history + spec.protocol.horizon)


@dataclass(frozen=True)
class CheckpointMeasurement:
    """A checkpoint on a job's anchors, and what the job measures."""

    bench: Bench
    spec: ScoreSpec

    def shard(self, rows: tuple[int, int], *, fit: bool = False) -> ShardRecord:
        """Measure anchors [start, stop): each frame is encoded once, views rolled forward.

        A deterministic shift is evaluated once and its distances repeated over the M draws. ``fit``
        also measures the errors of clean predictions.
        """
        held = latents_held(self.bench.model.card, self.spec)
        runs = self.bench.pieces(*rows, held)
        parts = [self._part(run, rows[1] if fit else 0) for run in runs]
        return ShardRecord.concatenate(parts) if len(parts) > 1 else parts[0]

    def _part(self, rows: tuple[int, int], fit: int) -> ShardRecord:
        """Measure anchors whose latents are held at a time; of a shard that ends at ``fit``."""
        bench, protocol = self.bench, self.spec.protocol
        history, future = bench.anchors.history, range(protocol.horizon)
        plan = PerturbationSet((self.spec.shift,), protocol.draws, protocol.seed)
        latents = bench.encode(*rows, history=history, future=future, views=plan)
        clean = latents.clean  # (n, h + H, dim)
        views = torch.cat([clean[:, None, :history], latents.views], dim=1)  # (n, 1 + v, h, dim)
        blocks = torch.from_numpy(bench.anchors.action_blocks[slice(*rows)])  # (n, h+H-1, width)
        rollouts = bench.rollout(views, blocks[:, None])  # (n, 1 + v, H, dim)
        steps = consistency.step_distances(rollouts[:, :1], rollouts[:, 1:])
        repeats = protocol.draws // steps.shape[1]
        measured = ShardRecord.measured(
            self.spec,
            steps.repeat_interleave(repeats, dim=1),  # (n, M, H)
            clean[:, history - 1 :],
            clean[:, :history],
        )
        if not fit:
            return measured
        errors = shard_errors(
            bench.anchors,
            clean,
            rollouts[:, 0],
            start=rows[0],
            stop=fit,
            rollout=bench.rollout,
            at_once=rollouts.shape[1],
        )
        return replace(measured, errors=errors)

    def fit(self, record: ShardRecord) -> Fit | None:
        """Judge whether the model predicts the anchors; None where errors were not measured."""

        def encode(anchors: Anchors, rows: range) -> Tensor:
            history, future = anchors.history, range(anchors.horizon)
            changed = replace(bench, anchors=anchors)
            return changed.encode(rows.start, rows.stop, history=history, future=future).clean

        bench, options = self.bench, self.spec.evidence
        return check_fit(bench.anchors, record.errors, options, encode, bench.rollout)

    def different_state_distances(
        self, record: ShardRecord, partner: Int64[np.ndarray, "n"]
    ) -> Float64[np.ndarray, "n"]:
        """Measure distances D_i (Eq. different-state-distance) to the partners j(i), or NaN.

        The partner takes the anchor's current and future blocks, so that both rollouts run under
        the actions a_i; of past blocks it keeps its own, or takes the anchor's too, as the protocol
        says.
        """
        anchors, protocol = self.bench.anchors, self.spec.protocol
        count = anchors.count
        weights = consistency.horizon_weights(protocol.weights, protocol.horizon)
        own_past = anchors.history - 1 if protocol.partner_past is PartnerPast.OWN else 0
        # A skipped anchor rolls beside itself, so that batches have one shape; its row is ignored.
        other = np.where(partner < 0, np.arange(count), partner)
        distances = np.empty(count)
        latents = 2 * protocol.horizon
        for rows in self.bench.pieces(0, count, latents, SEPARATED_ANCHORS):
            own = slice(*rows)
            blocks = torch.from_numpy(anchors.action_blocks[own])  # (m, h + H - 1, width)
            past_blocks = torch.from_numpy(anchors.action_blocks[other[own], :own_past])
            rollouts = self.bench.rollout(
                self._histories(record, np.concatenate([np.arange(count)[own], other[own]])),
                torch.cat([blocks, torch.cat([past_blocks, blocks[:, own_past:]], dim=1)]),
            )  # (2 m, H, dim)
            distances[own] = screening.different_state_distance(
                rollouts[: len(blocks)],
                rollouts[len(blocks) :],
                weights,
                torch.from_numpy(record.motion_scale[own]),
            ).numpy()
        distances[partner < 0] = np.nan
        return distances

    def _histories(self, record: ShardRecord, rows: Int64[np.ndarray, "m"]) -> Tensor:
        """Return latents of anchors' histories, (m, h, dim), encoded again where not kept."""
        if record.history_latents.size:
            return torch.from_numpy(record.history_latents[rows])
        h = self.bench.anchors.history
        return torch.cat(
            [self.bench.encode(row, row + 1, history=h).clean for row in rows.tolist()]
        )

    def with_endpoints(self, record: ShardRecord) -> ShardRecord:
        """Return the record with the latents of the anchors' endpoints, where it has none."""
        if record.endpoint_latents.size:
            return record
        last, pieces = [self.spec.protocol.horizon - 1], self.bench.pieces
        found = [
            self.bench.encode(*rows, history=0, future=last).clean[:, 0].numpy()
            for rows in pieces(0, self.bench.anchors.count, 1)
        ]
        return replace(record, endpoint_latents=np.concatenate(found))

    def rounding_floor(self, record: ShardRecord) -> float | None:
        """Return raw IR below which the network's rounding leaves it fewer than two digits.

        The anchors that decide raw IR are measured again in float64, each on its own, and a hundred
        times the largest difference of a draw's radius is the floor. A job in float64 measures them
        in float32 and scales the difference by the ratio of the two types' precisions.

        None for a family or a device that has no float64, and, with a warning in the log, where the
        other type has no room in memory, or its radii are not finite or, in float32, mostly error:
        the score stands without its floor.
        """
        bench = self.bench
        if not isinstance(bench.model, Widens):
            return None
        exact = bench.mode is NumericMode.FP64
        mode = NumericMode.FP32 if exact else NumericMode.FP64
        other = replace(self, bench=replace(bench, mode=mode))
        mean_radius = torch.from_numpy(record.draw_radius).mean(dim=1)
        deciding = screening.deciding_anchors(mean_radius, self.spec.protocol.quantile)
        try:
            rows = [other.shard((i, i + 1)).draw_radius[0] for i in deciding]
            worst = float(np.abs(np.stack(rows) - record.draw_radius[deciding]).max())
            why = f"the checkpoint's predictions are not finite in {mode}"
            if exact and worst > record.draw_radius[deciding].max() / 2:
                worst, why = math.nan, "float32 does not resolve what the shift changes"
        except ResourceExhausted as error:
            worst, why = math.nan, error.message
        if not math.isfinite(worst):
            log.warning("rounding_floor_not_measured", digest=bench.model.card.digest, why=why)
            return None
        return FLOOR_ERRORS * worst * (FP64_TO_FP32 if exact else 1.0)
