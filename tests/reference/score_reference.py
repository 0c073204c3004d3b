"""The answer to ScoreCheckpoint in float64: anchors, radii, distances, IR, SR, S and the verdict.

Written from the paper and the public protocol; loops over anchors, draws and steps. Shares no code
with the server but the noise generator (see ``pair_reference``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import torch
from acpc.v1 import perturbation_pb2
from numpy.typing import NDArray
from public_dataset import PublicColumns
from reference_model import ReferenceModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Anchors:
    """Windows of a dataset: identity, frames, normalised blocks, endpoint state, label."""

    ids: list[int]
    frames: list[NDArray[np.uint8]]
    blocks: list[Array]
    states: Array
    labels: list[int]


def standardised(column: NDArray[np.float32], rows: NDArray[np.int64]) -> Array:
    """Rows on the scale of the whole column, unbiased, rows with NaN left out of the statistics."""
    values = column.astype(np.float64)
    known = values[~np.isnan(values).any(axis=1)]
    scaled: Array = (values[rows] - known.mean(axis=0)) / known.std(axis=0, ddof=1)
    return scaled


def draw_anchors(
    content: PublicColumns, *, history: int, horizon: int, count: int, seed: int, frameskip: int
) -> Anchors:
    """The first ``count`` of a permutation of all windows, TwoRoom's columns and label."""
    span = (history + horizon) * frameskip
    windows = [
        int(offset) + start
        for offset, length in zip(content.offsets, content.lengths, strict=True)
        for start in range(max(0, int(length) - span + 1))
    ]
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(seed))
    ids = order[:count].tolist()
    first = [windows[identity] for identity in ids]
    kept = np.arange(history + horizon) * frameskip
    blocks = []
    for row in first:
        rows = np.arange(row, row + (history + horizon - 1) * frameskip)
        actions = np.nan_to_num(standardised(content.columns["action"], rows), nan=0.0)
        block = actions.reshape(history + horizon - 1, -1)
        blocks.append(block.astype(np.float32).astype(np.float64))
    ends = np.array([row + kept[-1] for row in first])
    states = standardised(content.columns["pos_agent"], ends)
    return Anchors(
        ids=ids,
        frames=[content.columns["pixels"][row + kept] for row in first],
        blocks=blocks,
        states=states,
        labels=metrics.median_split_labels(states[:, :1]),
    )


@dataclass(frozen=True)
class ReferenceScore:
    """One checkpoint's measurements; distances are NaN, and partners -1, where skipped."""

    ir_raw: float
    sr: float
    median_latent_distance: float
    radius: list[float]
    motion_scale: list[float]
    distance: list[float]
    partner: list[int]
    draw_radius: list[list[float]]
    step_radius: list[list[float]]
    summaries: dict[tuple[int, float], float]


def score(
    model: ReferenceModel,
    anchors: Anchors,
    spec: perturbation_pb2.PerturbationSpec,
    *,
    history: int,
    draws: int,
    seed: int,
    weights: Sequence[float] = (),
    quantile: float = 0.90,
    margin: float = 0.10,
    extra_horizons: Sequence[int] = (),
    extra_quantiles: Sequence[float] = (),
) -> ReferenceScore:
    """IR, SR and the per-anchor values of one checkpoint."""
    horizon = len(anchors.frames[0]) - history
    alphas = list(weights) or metrics.uniform(horizon)
    clean, rollouts, perturbed = [], [], []
    for identity, frames, blocks in zip(anchors.ids, anchors.frames, anchors.blocks, strict=True):
        images = pixels.model_input(frames, model.image_size)
        latents = model.encode(images)
        clean.append(latents)
        rollouts.append(model.rollout(latents[:history], blocks))
        views = [
            pair_reference.perturbed(images[:history], spec, seed=seed, anchor=identity, draw=draw)
            for draw in range(draws)
        ]
        perturbed.append([model.rollout(model.encode(view), blocks) for view in views])

    def radii(steps: int, alphas: Sequence[float]) -> list[list[float]]:
        table = []
        for latents, rollout, others in zip(clean, rollouts, perturbed, strict=True):
            scale = metrics.motion_scale(latents[history - 1 : history + steps])
            table.append(
                [
                    metrics.mean_radius([metrics.acpc(rollout[:steps], o[:steps], alphas)], scale)
                    for o in others
                ]
            )
        return table

    def raw_ir(table: list[list[float]], q: float) -> float:
        return metrics.invariance_radius([sum(row) / len(row) for row in table], q)

    table = radii(horizon, alphas)
    scales = [metrics.motion_scale(latents[history - 1 :]) for latents in clean]
    pushed = []
    for rollout, others, scale in zip(rollouts, perturbed, scales, strict=True):
        steps = [metrics.step_distances(rollout, other) for other in others]
        pushed.append([metrics.mean_radius(list(at), scale) for at in zip(*steps, strict=True)])
    partners, _ = metrics.pairing(anchors.states, anchors.labels)
    distances = []
    for i, j in enumerate(partners):
        if j < 0:
            distances.append(float("nan"))
            continue
        blocks = np.concatenate(
            [anchors.blocks[j][: history - 1], anchors.blocks[i][history - 1 :]]
        )
        partner = model.rollout(clean[j][:history], blocks)
        distances.append(metrics.different_state_distance(rollouts[i], partner, alphas, scales[i]))
    ir_raw = raw_ir(table, quantile)
    summaries = {}
    for steps in {*extra_horizons, horizon}:
        own = table if steps == horizon else radii(steps, metrics.uniform(steps))
        for q in {*extra_quantiles, quantile}:
            summaries[steps, q] = raw_ir(own, q)
    return ReferenceScore(
        ir_raw=ir_raw,
        sr=metrics.separation_rate(distances, ir_raw, margin),
        median_latent_distance=metrics.median_latent_distance([rows[-1] for rows in clean]),
        radius=[sum(row) / len(row) for row in table],
        motion_scale=scales,
        distance=distances,
        partner=partners,
        draw_radius=table,
        step_radius=pushed,
        summaries=summaries,
    )
