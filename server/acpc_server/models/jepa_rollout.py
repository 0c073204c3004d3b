"""Rollouts of LeWM's and PLDM's predictor, in as few operations as it takes.

What a step takes depends on the number of operations rather than on arithmetic, for a history as
for a small pool. So this reads a network's weights once into plain tuples: no module is called in a
step, what actions do to all layers at all steps is one product, the last layer computes its last
token alone, and steps lead every axis, so that windows and modulations are slices without copies.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.models.jepa import MODULATION_EPS, ConditionalBlock
from acpc_server.models.jepa_model import JepaModel

Affine: TypeAlias = tuple[Tensor, Tensor | None]
NORM_EPS = 1e-5
# Rows x heads from which attention over a window's few tokens takes a CPU half the time by its
# elements; below, the fused kernel's fewer operations win.
BY_ELEMENT = 256


class _Layer(NamedTuple):
    """Weights and biases of one conditional block."""

    attention_norm: Affine
    qkv: Affine
    out: Affine | None
    mlp_norm: Affine
    rise: Affine
    fall: Affine


class JepaRollout:
    """The predictor of a network in eval mode; keeps its weights as they are now."""

    def __init__(self, network: JepaModel) -> None:
        predictor, transformer = network.predictor, network.predictor.transformer
        self._embed, self._condition = network.action_encoder, transformer.cond_proj
        self._head = network.pred_proj
        self._window = predictor.num_frames
        self._positions = predictor.pos_embedding[0, :, None, None, None]  # (t, 1, 1, 1, dim)
        self._in, self._out = _linear(transformer.input_proj), _linear(transformer.output_proj)
        self._norm = _affine(transformer.norm)
        blocks = transformer.blocks
        self._heads = blocks[0].attn.heads
        self._layers = [_layer(block) for block in blocks]
        maps = [_affine(block.adaLN_modulation[1]) for block in blocks]
        biases = torch.stack([bias for _, bias in maps if bias is not None])
        shifted = biases.view(len(maps), 6, -1)  # a copy already
        shifted[:, 1::3] += 1.0  # scales multiply by 1 + what is computed
        self._modulation = torch.cat([weight for weight, _ in maps]), shifted.flatten()

    def unroll(
        self,
        histories: Float[Tensor, "v h dim"],
        past: Float[Tensor, "p past width"],
        future: Float[Tensor, "p j horizon width"],
    ) -> Float[Tensor, "v j horizon dim"]:
        """Roll every history forward under every action sequence of its pool, one of ``p``.

        Equal to predicting window by window; see :func:`acpc_server.models.rollout.rollout` for
        which latents and blocks meet at a step. Every step is one call of :meth:`step` for all
        rows; what actions do to the layers is computed once for all steps and views.
        """
        (v, h, _), (p, j, horizon, _) = histories.shape, future.shape
        blocks = torch.cat([past[:, None].expand(-1, j, -1, -1), future], dim=2)
        modulations = self.modulate(self._embed(blocks.permute(2, 0, 1, 3)))
        runs = histories.transpose(0, 1).reshape(h, p, v // p, 1, -1).expand(-1, -1, -1, j, -1)
        latents = list(runs.unbind(0))  # (p, v / p, j, dim) each
        for end in range(h, h + horizon):
            start = max(0, end - self._window)
            window = torch.stack(latents[start:end])
            latents.append(self.step(window, modulations[:, :, start:end]))
        return torch.stack(latents[h:], dim=3).reshape(v, j, horizon, -1)

    def modulate(
        self, embedded: Float[Tensor, "t p j emb"]
    ) -> Float[Tensor, "layers six t p 1 j hidden"]:
        """Shifts, scales and gates of every layer under embedded action blocks."""
        t, p, j, _ = embedded.shape
        found = F.linear(F.silu(self._condition(embedded)), *self._modulation)
        parts = found.view(t, p, 1, j, len(self._layers), 6, -1)
        return parts.permute(4, 5, 0, 1, 2, 3, 6).contiguous()

    def predict_next(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b dim"]:
        """Predict the latent that follows the last one, under embedded action blocks."""
        modulations = self.modulate(actions.transpose(0, 1)[:, :, None])
        return self.step(latents.transpose(0, 1)[:, :, None, None], modulations)[:, 0, 0]

    def step(
        self,
        window: Float[Tensor, "t p g j dim"],
        modulations: Float[Tensor, "layers six t p 1 j hidden"],
    ) -> Float[Tensor, "p g j dim"]:
        """Predict the latent after each window of ``t`` latents."""
        x = window + self._positions[: len(window)]
        x = x if self._in is None else F.linear(x, *self._in)
        width = x.shape[-1:]
        for layer, six in zip(self._layers, modulations.unbind(0), strict=True):
            last = layer is self._layers[-1]
            shift, scale = six[:2].unbind(0)
            gate, mlp_shift, mlp_scale, mlp_gate = (six[2:, -1:] if last else six[2:]).unbind(0)
            normed = torch.addcmul(shift, torch.layer_norm(x, width, eps=MODULATION_EPS), scale)
            normed = torch.layer_norm(normed, width, *layer.attention_norm, NORM_EPS)
            mixed = self._attend(F.linear(normed, *layer.qkv), last)
            mixed = mixed if layer.out is None else F.linear(mixed, *layer.out)
            x = torch.addcmul(x[-1:] if last else x, gate, mixed)
            normed = torch.addcmul(
                mlp_shift, torch.layer_norm(x, width, eps=MODULATION_EPS), mlp_scale
            )
            normed = torch.layer_norm(normed, width, *layer.mlp_norm, NORM_EPS)
            changed = F.linear(F.gelu(F.linear(normed, *layer.rise)), *layer.fall)
            x = torch.addcmul(x, mlp_gate, changed)
        out = torch.layer_norm(x[0], width, *self._norm, NORM_EPS)
        out = out if self._out is None else F.linear(out, *self._out)
        found: Tensor = self._head(out.flatten(0, 2))
        return found.view(*window.shape[1:-1], -1)

    def _attend(
        self, qkv: Float[Tensor, "t p g j three"], last: bool
    ) -> Float[Tensor, "q p g j inner"]:
        """Mix values causally: for each token, or for the last alone."""
        t, rows = len(qkv), qkv.shape[1:-1].numel()
        each = qkv.view(t, rows, 3, self._heads, -1)
        by_element = qkv.is_cpu and qkv.dtype is not torch.bfloat16
        if by_element and rows * self._heads >= BY_ELEMENT:
            mixed = _by_element(each, last)  # (q, rows, heads, d)
        else:
            q, k, v = each.permute(2, 1, 3, 0, 4).unbind(0)  # (rows, heads, t, d)
            q = q[:, :, -1:] if last else q
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=not last).permute(2, 0, 1, 3)
        return mixed.reshape(len(mixed), *qkv.shape[1:-1], -1)


def _by_element(
    tokens: Float[Tensor, "t rows 3 heads d"], last: bool
) -> Float[Tensor, "q rows heads d"]:
    """Compute attention of few tokens by its elements."""
    q, k, v = tokens.unbind(2)
    q = q[-1:] if last else q
    scores = (q[:, None] * k).sum(-1) * tokens.shape[-1] ** -0.5  # (q, t, rows, heads)
    if not last:
        hidden = scores.new_full((len(k), len(k)), -math.inf).triu(1)
        scores = scores + hidden[:, :, None, None]
    return (torch.softmax(scores, 1)[..., None] * v).sum(1)


def _affine(module: nn.Module) -> Affine:
    """Return weight and bias of a linear map or a norm."""
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)  # noqa: S101 - linear maps and norms have one
    assert bias is None or isinstance(bias, Tensor)  # noqa: S101 - likewise
    return weight, bias


def _linear(module: nn.Module) -> Affine | None:
    return None if isinstance(module, nn.Identity) else _affine(module)


def _layer(block: ConditionalBlock) -> _Layer:
    attention, mlp = block.attn, block.mlp.net
    out = attention.to_out[0] if isinstance(attention.to_out, nn.Sequential) else attention.to_out
    parts = [_affine(mlp[index]) for index in (0, 1, 4)]
    return _Layer(_affine(attention.norm), _affine(attention.to_qkv), _linear(out), *parts)
