"""The float64 forward of ``jepa_reference`` in torch operations, for networks of published size.

Same state dict, same names; only the loops over tokens and heads are gone. Tests compare the two on
small networks before they trust this one on large networks.
"""

from typing import Any

import torch
from jepa_reference import VIT_HEADS
from torch import Tensor
from torch.nn import functional as F

State = dict[str, Tensor]


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))


def norm(state: State, name: str, x: Tensor, eps: float) -> Tensor:
    weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int, hidden: Tensor | None = None) -> Tensor:
    """(tokens, inner) each; softmax of scaled scores, written out, of those not ``hidden``."""
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(-2, -3) for part in (q, k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2)


def project(state: State, head: str, x: Tensor) -> Tensor:
    hidden = linear(state, f"{head}.net.0", x)
    mean, variance = state[f"{head}.net.1.running_mean"], state[f"{head}.net.1.running_var"]
    hidden = (hidden - mean) / (variance + 1e-5).sqrt()
    hidden = hidden * state[f"{head}.net.1.weight"] + state[f"{head}.net.1.bias"]
    return linear(state, f"{head}.net.3", F.gelu(hidden))


def encode(state: State, config: dict[str, Any], frames: Tensor) -> Tensor:
    """Projected latents of (n, 3, side, side) frames at the side the network was made for."""
    encoder, emb = config["encoder"], "encoder.embeddings"
    size = encoder["patch_size"]
    heads = encoder.get("num_attention_heads", VIT_HEADS[encoder["size"]])
    kernel = state[f"{emb}.patch_embeddings.projection.weight"]
    patches = frames.unfold(2, size, size).unfold(3, size, size)  # (n, 3, rows, columns, p, p)
    tokens = torch.einsum("ncrspq,dcpq->nrsd", patches, kernel).flatten(1, 2)
    tokens = tokens + state[f"{emb}.patch_embeddings.projection.bias"]
    first = state[f"{emb}.cls_token"].expand(len(frames), -1, -1)
    x = torch.cat([first, tokens], 1) + state[f"{emb}.position_embeddings"]
    depth = len({name.split(".")[2] for name in state if name.startswith("encoder.layers.")})
    for index in range(depth):
        layer = f"encoder.layers.{index}"
        entering = norm(state, f"{layer}.layernorm_before", x, 1e-12)
        q, k, v = (linear(state, f"{layer}.attention.{part}_proj", entering) for part in "qkv")
        x = x + linear(state, f"{layer}.attention.o_proj", attend(q, k, v, heads))
        entering = norm(state, f"{layer}.layernorm_after", x, 1e-12)
        x = x + linear(
            state, f"{layer}.mlp.fc2", F.gelu(linear(state, f"{layer}.mlp.fc1", entering))
        )
    return project(state, "projector", norm(state, "encoder.layernorm", x, 1e-12)[:, 0])


def embed(state: State, blocks: Tensor) -> Tensor:
    smoothed = blocks @ state["action_encoder.patch_embed.weight"][:, :, 0].T
    smoothed = smoothed + state["action_encoder.patch_embed.bias"]
    hidden = F.silu(linear(state, "action_encoder.embed.0", smoothed))
    return linear(state, "action_encoder.embed.2", hidden)


def predict(state: State, config: dict[str, Any], latents: Tensor, actions: Tensor) -> Tensor:
    """Projected prediction after the last token; predictor as wide inside as outside."""
    x = latents + state["predictor.pos_embedding"][0, : len(latents)]
    later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    for index in range(config["depth"]):
        layer = f"predictor.transformer.layers.{index}"
        modulation = linear(state, f"{layer}.adaLN_modulation.1", F.silu(actions))
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation.chunk(6, -1)
        entering = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift
        entering = norm(state, f"{layer}.attn.norm", entering, 1e-5)
        q, k, v = linear(state, f"{layer}.attn.to_qkv", entering).chunk(3, -1)
        mixed = attend(q, k, v, config["heads"], later)
        x = x + gate * linear(state, f"{layer}.attn.to_out.0", mixed)
        entering = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + mlp_scale) + mlp_shift
        entering = norm(state, f"{layer}.mlp.net.0", entering, 1e-5)
        hidden = F.gelu(linear(state, f"{layer}.mlp.net.1", entering))
        x = x + mlp_gate * linear(state, f"{layer}.mlp.net.4", hidden)
    return project(state, "pred_proj", norm(state, "predictor.transformer.norm", x, 1e-5)[-1])


def rollout(state: State, config: dict[str, Any], history: Tensor, blocks: Tensor) -> Tensor:
    """Latents after (h, dim) history latents under (h + H - 1, width) blocks."""
    longest, actions = config["predictor"]["num_frames"], embed(state, blocks)
    latents = list(history)
    while len(latents) <= len(blocks):
        window = slice(max(0, len(latents) - longest), len(latents))
        past = torch.stack(latents[window])
        latents.append(predict(state, config["predictor"], past, actions[window]))
    return torch.stack(latents[len(history) :])
