"""Autoregressive rollouts in the projected latent space."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from acpc_server.errors import InvalidArgument
from acpc_server.models.frozen import FrozenWorldModel, check_history


@runtime_checkable
class Unrolls(Protocol):
    """A model that rolls out faster than by one :meth:`predict_next` call a step."""

    def unroll(
        self,
        histories: Float[Tensor, "v h dim"],
        past: Float[Tensor, "p past width"],
        future: Float[Tensor, "p j horizon width"],
    ) -> Float[Tensor, "v j horizon dim"]:
        """Roll every history forward under every action sequence of its pool.

        There is a pool, with its past blocks, for each run of ``v / p`` histories; p divides v.
        """


@contextmanager
def forward_derivatives() -> Iterator[None]:
    """Let forward-mode derivatives pass; fused attention, without any, is off in all threads."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            forward_ad.dual_level(),
        ):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def rollout(
    model: FrozenWorldModel,
    history_latents: Float[Tensor, "b h dim"],
    blocks: Float[Tensor, "b t width"],
) -> Float[Tensor, "b horizon dim"]:
    """Predict the latents of the ``H`` frames after a history of ``h`` frames.

    Block ``k`` is the action block that leaves frame ``k``, so ``h + H - 1`` blocks give ``H``
    steps and block ``h - 1`` is the paper's ``a_0``. Step ``t`` feeds the last ``min(card.history,
    h + t)`` latents, observed ones first and then predicted ones, with the blocks of the same
    frames, and appends the last output token. A history shorter than ``card.history`` therefore
    starts with a shorter window that grows. Raises InvalidArgument: ``history`` too long, or
    ``action_blocks`` too few or of another width.
    """
    past = history_latents.shape[1] - 1
    _check(model, history_latents, blocks.shape[1], blocks.shape[2])
    out = _unroll(model, history_latents, blocks[:, :past], blocks[:, None, past:])
    return out[:, 0]  # (b, horizon, dim)


def rollout_pool(
    model: FrozenWorldModel,
    histories: Float[Tensor, "v h dim"],
    past: Float[Tensor, "*pools past width"],
    pools: Float[Tensor, "p j horizon width"],
) -> Float[Tensor, "v j horizon dim"]:
    """Roll every history forward under every candidate of its pool, as :func:`rollout`.

    There is a pool for each run of ``v / p`` histories. ``past`` are the ``h - 1`` blocks that
    leave the earlier history frames, (h - 1, width), or (p, h - 1, width). Raises InvalidArgument:
    As :func:`rollout`, or ``past_blocks`` are not ``h - 1``.
    """
    if past.shape[-2] != histories.shape[1] - 1:
        raise InvalidArgument(
            "past_blocks",
            f"{past.shape[-2]} blocks for {histories.shape[1]} history frames; one block leaves "
            "each frame but the last",
        )
    _check(model, histories, past.shape[-2] + pools.shape[2], pools.shape[3])
    return _unroll(model, histories, past.expand(len(pools), -1, -1), pools)


def _check(model: FrozenWorldModel, histories: Tensor, blocks: int, width: int) -> None:
    card, history = model.card, histories.shape[1]
    check_history(card, history)
    if width != card.action_block_dim:
        raise InvalidArgument(
            "action_blocks",
            f"blocks of width {width}, but the checkpoint was trained on blocks of width "
            f"{card.action_block_dim} (frameskip x action width)",
            reason="ACTION_BLOCK_MISMATCH",
        )
    if blocks < history:
        raise InvalidArgument(
            "action_blocks",
            f"{blocks} blocks for {history} history frames; H steps need {history} + H - 1",
        )


def _unroll(model: FrozenWorldModel, histories: Tensor, past: Tensor, future: Tensor) -> Tensor:
    if isinstance(model, Unrolls):
        return model.unroll(histories, past, future)
    (v, h, _), (j, horizon) = histories.shape, future.shape[1:3]
    pools = torch.cat([past[:, None].expand(-1, j, -1, -1), future], dim=2)  # (p, j, ...)
    blocks = pools.repeat_interleave(v // len(pools), dim=0).flatten(0, 1)
    rows = histories[:, None].expand(-1, j, -1, -1).flatten(0, 1)  # (v * j, h, dim)
    actions = model.embed_actions(blocks)  # (v * j, h + H - 1, emb)
    latents = list(rows.unbind(1))
    for end in range(h, h + horizon):
        start = max(0, end - model.card.history)
        window = torch.stack(latents[start:end], dim=1)  # (v * j, window, dim)
        latents.append(model.predict_next(window, actions[:, start:end]))
    return torch.stack(latents[h:], dim=1).reshape(v, j, horizon, -1)
