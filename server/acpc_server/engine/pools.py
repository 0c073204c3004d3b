"""Rollouts of candidate pools as computations that a fast path may stand in for."""

from __future__ import annotations

from functools import partial

import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.fast_paths import Computation
from acpc_server.models import FrozenWorldModel, TakesProprio, rollout_pool

# Of the largest number of an answer. In bfloat16 either answer is off by about 1e-2.
TOLERANCE, REDUCED_TOLERANCE = 1e-5, 5e-2


def pool_computation(model: FrozenWorldModel, mode: NumericMode) -> Computation | None:
    """``rollout_pool`` of a model; None where a fast path would gain nothing."""
    if mode is NumericMode.FP64:  # what seldom comes often
        return None
    reduced = mode is NumericMode.BF16
    return Computation(
        "pool",
        (model.card.digest, mode),
        partial(rollout_pool, model),
        REDUCED_TOLERANCE if reduced else TOLERANCE,
        partial(_one_rollout, model),
    )


def _one_rollout(
    model: FrozenWorldModel,
    place: float,
    answer: Tensor,
    histories: Tensor,
    past: Tensor,
    pools: Tensor,
) -> tuple[Tensor, Tensor]:
    """One history under one candidate, (horizon, dim): as answered, and predicted again.

    Every step is predicted from those that were answered before it, all in one pass or a few.
    """
    v, j, horizon, _ = answer.shape
    view, candidate = divmod(int(place * v * j), j)
    row = view * len(pools) // v
    history, found = histories[view], answer[view, candidate]
    before, future = past.expand(len(pools), -1, -1)[row], pools[row, candidate]
    if isinstance(model, TakesProprio):  # whose predictions hold more than a latent says
        again = rollout_pool(model, history[None], before, future[None, None])
        return found, again[0, 0]
    latents, blocks = torch.cat([history, found[:-1]]), torch.cat([before, future])
    actions = model.embed_actions(blocks[None])[0]
    ends: dict[int, list[int]] = {}  # of windows, by their length
    for end in range(len(history), len(history) + horizon):
        ends.setdefault(min(end, model.card.history), []).append(end)
    predicted = [
        model.predict_next(
            *(torch.stack([x[end - t : end] for end in of]) for x in (latents, actions))
        )
        for t, of in ends.items()
    ]
    return found, torch.cat(predicted)
