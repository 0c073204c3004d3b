"""Autoregressive rollout in the projected latent space."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.models.frozen import FrozenWorldModel, check_history


def rollout(
    model: FrozenWorldModel,
    history_latents: Float[Tensor, "b h dim"],
    blocks: Float[Tensor, "b t width"],
) -> Float[Tensor, "b horizon dim"]:
    """Predicted latents of the ``H`` frames after a history of ``h`` frames.

    Block ``k`` is the action block that leaves frame ``k``, so ``h + H - 1`` blocks give ``H``
    steps and block ``h - 1`` is the paper's ``a_0``. Step ``t`` feeds the last
    ``min(card.history, h + t)`` latents, observed ones first and then predicted ones, with the
    blocks of the same frames, and appends the last output token. A history shorter than
    ``card.history`` therefore starts with a shorter window that grows.

    Args:
        model: Frozen world model.
        history_latents: Latents of the ``h`` history frames, ``1 <= h <= card.history``.
        blocks: Normalised action blocks of frames ``0 .. h + H - 2``.

    Returns:
        Latents of frames ``h .. h + H - 1``.

    Raises:
        InvalidArgument: ``history`` too long, or ``action_blocks`` too few or of another width.
    """
    card = model.card
    history = history_latents.shape[1]
    check_history(card, history)
    count, width = blocks.shape[1:]
    if width != card.action_block_dim:
        raise InvalidArgument(
            "action_blocks",
            f"blocks of width {width}, but the checkpoint was trained on blocks of width "
            f"{card.action_block_dim} (frameskip x action width)",
            reason="ACTION_BLOCK_MISMATCH",
        )
    if count < history:
        raise InvalidArgument(
            "action_blocks",
            f"{count} blocks for {history} history frames; H steps need {history} + H - 1",
        )
    actions = model.embed_actions(blocks)  # (b, h + H - 1, emb)
    latents = list(history_latents.unbind(1))
    for end in range(history, count + 1):
        start = max(0, end - card.history)
        window = torch.stack(latents[start:end], dim=1)  # (b, window, dim)
        latents.append(model.predict_next(window, actions[:, start:end]))
    return torch.stack(latents[history:], dim=1)
