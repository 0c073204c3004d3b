"""The answer to ScoreCheckpoint in float64: anchors, radii, distances, IR, SR, S and the verdict.

Written from the paper and the public protocol; loops over anchors, draws and steps. Shares no code
with the server but the noise generator (see ``pair_reference``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import torch
from acpc.arrays import NDArray
from acpc.v1 import perturbation_pb2
from public_dataset import PublicColumns
from reference_model import ReferenceModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Anchors:
    """Windows of a dataset: identity, frames, normalised blocks, endpoint state, label.

    Attributes:
        ids: Index of each window among all of its length.
        frames: The history and H future frames.
        blocks: Those that H steps need, history + H - 1.
        window_blocks: The block that leaves each frame of the window, which may be longer.
        states: At frame history + H - 1, standardised.
        labels: Of the endpoint states.
    """

    ids: list[int]
    frames: list[NDArray[np.uint8]]
    blocks: list[Array]
    window_blocks: list[Array]
    states: Array
    labels: list[int]


def standardised(column: NDArray[np.float32], rows: NDArray[np.int64]) -> Array:
    """Rows on the scale of the whole column, unbiased, rows with NaN left out of the statistics."""
    values = column.astype(np.float64)
    known = values[~np.isnan(values).any(axis=1)]
    scaled: Array = (values[rows] - known.mean(axis=0)) / known.std(axis=0, ddof=1)
    return scaled


def starts(content: PublicColumns, frames: int, frameskip: int) -> list[tuple[int, int]]:
    """Episode and first row of every window of so many kept frames, episode-major."""
    span = frames * frameskip
    return [
        (episode, int(offset) + start)
        for episode, (offset, length) in enumerate(
            zip(content.offsets, content.lengths, strict=True)
        )
        for start in range(max(0, int(length) - span + 1))
    ]


def draw_anchors(
    content: PublicColumns,
    *,
    history: int,
    horizon: int,
    count: int,
    seed: int,
    frameskip: int,
    future_frames: int | None = None,
) -> Anchors:
    """The first ``count`` of a permutation of all windows, TwoRoom's columns and label.

    ``future_frames`` is how many a window has after its history; None: the horizon.
    """
    windows = starts(content, history + (future_frames or horizon), frameskip)
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(seed))
    return anchors_at(
        content,
        order[:count].tolist(),
        history=history,
        horizon=horizon,
        frameskip=frameskip,
        future_frames=future_frames,
    )


def anchors_at(
    content: PublicColumns,
    ids: list[int],
    *,
    history: int,
    horizon: int,
    frameskip: int,
    future_frames: int | None = None,
) -> Anchors:
    """The windows of these indices."""
    length = history + (future_frames or horizon)
    windows = starts(content, length, frameskip)
    first = [windows[identity][1] for identity in ids]
    kept = np.arange(history + horizon) * frameskip
    leaving = []
    for row in first:
        rows = np.arange(row, row + length * frameskip)
        actions = np.nan_to_num(standardised(content.columns["action"], rows), nan=0.0)
        leaving.append(actions.reshape(length, -1).astype(np.float32).astype(np.float64))
    ends = np.array([row + kept[-1] for row in first])
    states = standardised(content.columns["pos_agent"], ends)
    return Anchors(
        ids=ids,
        frames=[content.columns["pixels"][row + kept] for row in first],
        blocks=[blocks[: history + horizon - 1] for blocks in leaving],
        window_blocks=leaving,
        states=states,
        labels=metrics.median_split_labels(states[:, :1]),
    )


@dataclass(frozen=True, kw_only=True)
class ReferenceScore(metrics.Side):
    """One checkpoint's measurements; distances are NaN, and partners -1, where skipped."""

    radius: list[float]
    motion_scale: list[float]
    partner: list[int]
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
    reach: float = 0.35,
    partner_past: str = "own",
) -> ReferenceScore:
    """IR, SR and the per-anchor values of one checkpoint.

    ``reach`` is the quantile behind d_0.35. ``partner_past`` says whose blocks precede a_0 in the
    partner's rollout: its ``own``, as the paper has it, or the ``anchor``'s, as the released code.
    """
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

    table = radii(horizon, alphas)
    scales = [metrics.motion_scale(latents[history - 1 :]) for latents in clean]
    pushed = []
    for rollout, others, scale in zip(rollouts, perturbed, scales, strict=True):
        steps = [metrics.step_distances(rollout, other) for other in others]
        pushed.append([metrics.mean_radius(list(at), scale) for at in zip(*steps, strict=True)])
    partners, _ = metrics.pairing(anchors.states, anchors.labels, reach)
    distances = []
    for i, j in enumerate(partners):
        if j < 0:
            distances.append(float("nan"))
            continue
        before = anchors.blocks[{"own": j, "anchor": i}[partner_past]][: history - 1]
        blocks = np.concatenate([before, anchors.blocks[i][history - 1 :]])
        partner = model.rollout(clean[j][:history], blocks)
        distances.append(metrics.different_state_distance(rollouts[i], partner, alphas, scales[i]))
    summaries = {}
    for steps in {*extra_horizons, horizon}:
        own = table if steps == horizon else radii(steps, metrics.uniform(steps))
        for q in {*extra_quantiles, quantile}:
            summaries[steps, q] = metrics.invariance_radius(metrics.means(own), q)
    return ReferenceScore(
        latents=[rows[-1] for rows in clean],
        quantile=quantile,
        margin=margin,
        radius=metrics.means(table),
        motion_scale=scales,
        distance=distances,
        partner=partners,
        draw_radius=table,
        step_radius=pushed,
        summaries=summaries,
    )
