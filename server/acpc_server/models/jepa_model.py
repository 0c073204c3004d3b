"""The world model of LeWM and PLDM, and its rollout without repeated work.

The two differ in how they are trained, not in what they compute. A rollout feeds the predictor a
sliding window of at most ``num_frames`` tokens. Three things are the same wherever a token appears
and are computed once here, one network pass per new token instead of one per window:

- the modulation by its action, whatever the window, step or view;
- its keys and values while the window only grows, because positions do not move then;
- the tokens before the first candidate action, which all candidates of a pool share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.errors import InvalidArgument
from acpc_server.models.jepa import ConditionalBlock, Embedder, Predictor
from acpc_server.models.vit import ViT

# So few tokens are attended to element by element: a CPU's kernel is called per row and head.
FEW_TOKENS = 4


class JepaModel(nn.Module):
    """Encoder and predictor in one projected latent space.

    Observations become ``projector(CLS)`` and predictions ``pred_proj(predictor)``; planner costs
    and every distance of the paper live in that space. Attribute names give the state dict the
    public layout. It can be trained; for inference see ``frozen.FrozenJepa``.
    """

    def __init__(
        self,
        encoder: ViT,
        predictor: Predictor,
        action_encoder: Embedder,
        projector: nn.Module | None = None,
        pred_proj: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.predictor = predictor
        self.action_encoder = action_encoder
        self.projector = projector if projector is not None else nn.Identity()
        self.pred_proj = pred_proj if pred_proj is not None else nn.Identity()

    def check_frames(self, height: int, width: int) -> None:
        """Raise InvalidArgument for frames smaller than one patch."""
        patch = self.encoder.patch_size
        if min(height, width) < patch:
            raise InvalidArgument(
                "frames",
                f"height {height} and width {width}; the encoder's patches are {patch} pixels a "
                "side",
            )

    def encode(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n dim"]:
        """Projected latents of normalised frames."""
        return self.projector(self.encoder(frames))

    def embed_actions(self, blocks: Float[Tensor, "b t block"]) -> Float[Tensor, "b t emb"]:
        """Embeddings of normalised action blocks."""
        return self.action_encoder(blocks)

    def predict(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b t dim"]:
        """Predict for every token the projected latent that follows it (training)."""
        tokens = self.predictor(latents, actions)  # (b, t, out)
        projected: Tensor = self.pred_proj(tokens.flatten(0, 1))  # (b * t, dim)
        return projected.view(*tokens.shape[:2], -1)

    def predict_next(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b dim"]:
        """The last token of ``predict`` alone; equal to it in eval mode and cheaper."""
        out: Tensor = self.pred_proj(self.predictor(latents, actions, last_only=True)[:, -1])
        return out

    def unroll(
        self,
        histories: Float[Tensor, "v h dim"],
        past: Float[Tensor, "p past width"],
        future: Float[Tensor, "p j horizon width"],
    ) -> Float[Tensor, "v j horizon dim"]:
        """Roll every history forward under every action sequence of its pool, one of ``p``.

        Equal to predicting window by window; see :func:`acpc_server.models.rollout.rollout` for
        which latents and blocks meet at a step.
        """
        (v, h, _), (j, horizon) = histories.shape, future.shape[1:3]
        run = _Run(self, past, future, v)
        latents = [x[:, None] for x in histories.unbind(1)]  # each (v, 1 or j, dim)
        for end in range(h, h + horizon):
            start = max(0, end - self.predictor.num_frames)
            latents.append(run.step(latents, start, end, shared=h - 1 if j > 1 else 0))
        predicted = [x.expand(v, j, -1) for x in latents[h:]]
        return torch.stack(predicted, dim=2)  # (v, j, horizon, dim)


@dataclass
class _KeyValues:
    """Keys and values of one layer for the tokens of the current window, (rows, t, heads, d)."""

    keys: Tensor | None = None
    values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append new tokens; tokens that all candidates share are repeated for each of them."""
        if self.keys is not None and self.values is not None:
            copies = len(keys) // len(self.keys)
            old_keys, old_values = (
                x if copies == 1 else x.repeat_interleave(copies, dim=0)
                for x in (self.keys, self.values)
            )
            keys = torch.cat([old_keys, keys], dim=1)
            values = torch.cat([old_values, values], dim=1)
        self.keys, self.values = keys, values
        return keys, values


class _Run:
    """One rollout: the modulations of its actions, and what its current window has seen."""

    def __init__(self, network: JepaModel, past: Tensor, future: Tensor, histories: int) -> None:
        self._network = network
        self._predictor = network.predictor
        self._past = past.shape[1]
        transformer = network.predictor.transformer
        self._layers: list[ConditionalBlock] = list(transformer.layers)  # type: ignore[arg-type]
        # Histories in a row that share a pool; with one for all, it is broadcast instead.
        self._run = histories // len(future) if len(future) > 1 else 1
        blocks = [past[:, None], future]  # each (p, 1 or j, t, width)
        embedded = [self._embed(x) for x in blocks]
        self._modulations = [
            [layer.adaLN_modulation(x) for x in embedded] for layer in self._layers
        ]
        self._start = -1
        self._seen_end = 0
        self._seen = [_KeyValues() for _ in self._layers]

    def _embed(self, blocks: Tensor) -> Tensor:
        embedded = self._network.embed_actions(blocks.flatten(0, 1))
        embedded = embedded.reshape(*blocks.shape[:3], embedded.shape[-1])  # (p, 1 or j, t, emb)
        return self._predictor.transformer.cond_proj(embedded)

    def step(self, latents: list[Tensor], start: int, end: int, shared: int) -> Tensor:
        """The projected latent that follows token ``end - 1`` of the window from ``start``."""
        if start != self._start:
            self._start, self._seen_end = start, start
            self._seen = [_KeyValues() for _ in self._layers]
            if start < shared:
                self._tokens(latents, start, shared)
        hidden = self._tokens(latents, self._seen_end, end)
        transformer = self._predictor.transformer
        out = transformer.output_proj(transformer.norm(hidden[:, :, -1]))  # (v, j, out)
        projected: Tensor = self._network.pred_proj(out.flatten(0, 1))
        return projected.reshape(*out.shape[:2], -1)

    def _tokens(self, latents: list[Tensor], first: int, end: int) -> Tensor:
        """Pass tokens ``first..end - 1`` through; the last layer yields only the last of them."""
        window = latents[first:end]
        j = max(x.shape[1] for x in (*window, self._of_pools(0, first, end)))
        v = window[0].shape[0]
        inputs = torch.stack([x.expand(v, j, -1) for x in window], dim=2)  # (v, j, t, dim)
        positions = self._predictor.pos_embedding[0, first - self._start : end - self._start]
        hidden: Tensor = self._predictor.transformer.input_proj(inputs + positions)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            modulation = self._of_pools(index, first, end)  # (p or v, 1 or j, t, 6 width)
            if self._run > 1:
                modulation = modulation.repeat_interleave(self._run, dim=0)
            hidden = _block(layer, hidden, modulation, self._seen[index], index == last)
        self._seen_end = end
        return hidden

    def _of_pools(self, layer: int, first: int, end: int) -> Tensor:
        """Modulations of tokens ``first..end - 1`` for each pool, (p, 1 or j, t, 6 width)."""
        past: Tensor = self._modulations[layer][0]
        future: Tensor = self._modulations[layer][1]
        if first >= self._past:
            return future[:, :, first - self._past : end - self._past]
        if end <= self._past:
            return past[:, :, first:end]
        both = past[:, :, first:], future[:, :, : end - self._past]
        return torch.cat([x.expand(-1, future.shape[1], -1, -1) for x in both], dim=2)


def _block(
    layer: ConditionalBlock, hidden: Tensor, modulation: Tensor, seen: _KeyValues, last_only: bool
) -> Tensor:
    """One conditional block over new tokens (v, j, t, width) that also see the earlier ones."""
    shift, scale, *_ = modulation.chunk(6, dim=-1)
    normed = layer.attn.norm(torch.addcmul(shift, layer.norm1(hidden), 1 + scale))
    if last_only:
        hidden, modulation = hidden[:, :, -1:], modulation[:, :, -1:]
    mixed = _attend(layer, normed, seen, last_only)
    _, _, gate, mlp_shift, mlp_scale, mlp_gate = modulation.chunk(6, dim=-1)
    hidden = torch.addcmul(hidden, gate, mixed)
    modulated = torch.addcmul(mlp_shift, layer.norm2(hidden), 1 + mlp_scale)
    return torch.addcmul(hidden, mlp_gate, layer.mlp(modulated))


def _attend(layer: ConditionalBlock, normed: Tensor, seen: _KeyValues, last_only: bool) -> Tensor:
    attention = layer.attn
    v, j, count, _ = normed.shape
    mapped = attention.to_qkv(normed.reshape(v * j, count, -1))
    queries, keys, values = mapped.unflatten(2, (3, attention.heads, -1)).unbind(2)
    keys, values = seen.extend(keys, values)
    if last_only:
        queries = queries[:, -1:]
    out: Tensor = attention.to_out(_mix(queries, keys, values).flatten(2))
    return out.reshape(v, j, queries.shape[1], -1)


def _mix(
    queries: Float[Tensor, "n q heads d"],
    keys: Float[Tensor, "n t heads d"],
    values: Float[Tensor, "n t heads d"],
) -> Float[Tensor, "n q heads d"]:
    """Attention of the last ``q`` of ``t`` tokens, each to itself and those before it."""
    (asked, total), kind = (queries.shape[1], keys.shape[1]), queries.dtype
    by_element = queries.device.type == "cpu" and total <= FEW_TOKENS
    causal = 1 < asked == total and not by_element
    mask = None
    if asked > 1 and not causal:
        mask = torch.ones(asked, total, dtype=torch.bool, device=queries.device)
        mask = mask.tril(total - asked)
    if not by_element:
        by_head = [x.transpose(1, 2) for x in (queries, keys, values)]
        attend = partial(F.scaled_dot_product_attention, attn_mask=mask, is_causal=causal)
        mixed: Tensor = attend(*by_head)
        return mixed.transpose(1, 2)
    with torch.autocast("cpu", enabled=False):
        wide = torch.promote_types(kind, torch.float32)
        queries, keys, values = (x.to(wide) for x in (queries, keys, values))
        scores = (queries[:, :, None] * keys[:, None]).sum(-1) * queries.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, :, None], -torch.inf)
        weights = scores.softmax(2)[..., None]  # (n, q, t, heads, 1)
        mixed = weights[:, :, 0] * values[:, None, 0]  # (n, q, heads, d)
        for token in range(1, total):
            mixed = torch.addcmul(mixed, weights[:, :, token], values[:, None, token])
        return mixed.to(kind)
