"""Measures whether a checkpoint predicts the data: its errors, and those with mistakes undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from acpc.contract import EvidenceOptions, Fit, FitOutcome
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from acpc_server.data import Anchors, PartialAnchors
from acpc_server.evidence import FIT_METHOD, FitErrors, Variant, judge_fit
from acpc_server.numerics import consistency

# The first anchors whose actions are exchanged, and whose frames are changed: part of what a fit
# means. Frames cost most, so of few anchors there are fewer, unless the fit is in doubt.
FIT_ANCHORS = 64
FRAME_ANCHORS, ANCHORS_A_FRAME_ANCHOR = 8, 12
FRAME_CHANGES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "bgr": lambda frames: frames[..., ::-1],
    "upside_down": lambda frames: frames[..., ::-1, :, :],
    "mirrored": lambda frames: frames[..., ::-1, :],
}
FIT_PARAMETERS = {
    "method": FIT_METHOD,
    "action_anchors": FIT_ANCHORS,
    "frame_anchors": FRAME_ANCHORS,
    "anchors_a_frame_anchor": ANCHORS_A_FRAME_ANCHOR,
}
"""What a receipt says of how the fit is measured."""
Errors = dict[str, np.ndarray]
Rollout = Callable[[Tensor, Tensor], Tensor]


def clean_errors(
    observed: Float[Tensor, "n frames dim"], predicted: Float[Tensor, "n horizon dim"]
) -> tuple[Float64[np.ndarray, "n horizon"], Float64[np.ndarray, "n horizon"]]:
    """Compute how far predictions, and the last observed latent, end from the observed future.

    ``observed`` are the latents of the history and of the future that is predicted.
    """
    horizon = predicted.shape[1]
    future, last = observed[:, -horizon:], observed[:, -horizon - 1, None]
    own = consistency.step_distances(predicted, future)
    return own.numpy(), consistency.step_distances(last.expand_as(future), future).numpy()


def foreign_rows(trajectory: Int64[np.ndarray, "stop"], rows: range) -> Int64[np.ndarray, "n"]:
    """Return for each row the next one of another trajectory, else the last before; -1: none."""
    found = []
    for row in rows:
        others = [*range(row + 1, len(trajectory)), *range(row - 1, -1, -1)]
        found.append(next((x for x in others if trajectory[x] != trajectory[row]), -1))
    return np.array(found, np.int64)


def shard_errors(
    anchors: Anchors,
    clean: Tensor,
    predicted: Tensor,
    *,
    start: int,
    stop: int,
    rollout: Rollout,
    at_once: int,
) -> Errors:
    """Measure errors of anchors from ``start`` on, of a shard that ends at ``stop``; (n, H) each.

    ``own`` of the model, ``still`` of the last observed latent; of the first anchors, NaN after
    them, also ``foreign``, with the current and future blocks of another trajectory, and those with
    mistaken actions undone. ``clean`` are latents of history and future, (n, h + H, dim). They roll
    ``at_once`` variants a call, apart from all else, so that no other number depends on them.
    """
    errors = dict(zip(("own", "still"), clean_errors(clean, predicted), strict=True))
    count, history = min(start + len(clean), FIT_ANCHORS) - start, anchors.history
    if count <= 0:
        return errors
    rows = slice(start, start + count)
    of_fit = anchors.action_variants(min(FIT_ANCHORS, anchors.count))
    variants = {name: blocks[rows] for name, blocks in of_fit.items()}
    other = foreign_rows(anchors.trajectory_ids[:stop], range(start, start + count))
    past = anchors.action_blocks[rows, : history - 1]
    variants["foreign"] = np.concatenate(
        [past, anchors.action_blocks[other, history - 1 :]], axis=1
    )
    listed = [*variants]
    for names in (listed[at : at + at_once] for at in range(0, len(listed), at_once)):
        histories = clean[:count, :history].repeat(len(names), 1, 1)
        blocks = np.concatenate([variants[name] for name in names])
        rolled = rollout(histories, torch.from_numpy(blocks))
        for name, part in zip(names, torch.split(rolled, count), strict=True):
            errors[name] = np.full_like(errors["own"], np.nan)
            errors[name][:count] = clean_errors(clean[:count], part)[0]
    errors["foreign"][:count][other < 0] = np.nan
    return errors


def check_fit(
    anchors: Anchors,
    errors: Mapping[str, np.ndarray],
    options: EvidenceOptions,
    encode: Callable[[Anchors, range], Tensor],
    rollout: Rollout,
) -> Fit | None:
    """Judge the fit from the errors of all shards; None where they were not measured.

    ``encode`` gives latents of all frames of some anchors. Frames are changed of few anchors, since
    they must be encoded again: of ``FRAME_ANCHORS`` where the fit is in doubt.
    """
    rest = dict(errors)
    own, still, foreign = (rest.pop(name, None) for name in ("own", "still", "foreign"))
    if own is None or still is None or foreign is None or np.isnan(own).any():
        return None
    variants = {name: Variant(error, still) for name, error in rest.items()}
    measured = FitErrors(own, still, foreign, variants, anchors.trajectory_ids)
    found = judge_fit(measured, options)
    if found is None:
        return None
    count = min(FRAME_ANCHORS, anchors.count)
    if found.outcome is FitOutcome.FITS:
        count = min(count, anchors.count // ANCHORS_A_FRAME_ANCHOR)
    if not count:
        return found
    for name, change in FRAME_CHANGES.items():
        changed = PartialAnchors(anchors, count, anchors.horizon, change)
        variant = Variant(np.full_like(own, np.nan), np.full_like(own, np.nan))
        latents = encode(changed, range(count))
        rolled = rollout(latents[:, : changed.history], torch.from_numpy(changed.action_blocks))
        variant.error[:count], variant.still[:count] = clean_errors(latents, rolled)
        variants[name] = variant
    return judge_fit(measured, options)
