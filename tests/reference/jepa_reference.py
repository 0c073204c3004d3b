"""LeWM and PLDM inference in float64, written from their description.

Takes the state dict under the 5.x transformer names and the config tree; shares no code with the
server. In torch, for its derivatives; attention and resampling are written out.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

State = dict[str, Tensor]
VIT_HEADS = {"tiny": 3, "small": 6, "base": 12}


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


def later(count: int, each: int = 1) -> Tensor:
    """Which of ``count`` tokens, ``each`` a frame, lie in a later frame than another."""
    frame = torch.arange(count) // each
    return frame[None, :] > frame[:, None]


def cubic(distance: float) -> float:
    """Keys' cubic convolution kernel with a = -0.75."""
    a, t = -0.75, abs(distance)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def resize_matrix(old: int, new: int, step: float) -> Tensor:
    """Bicubic resize of one axis, places ``step`` apart at half integers, edges repeated."""
    matrix = torch.zeros(new, old, dtype=torch.float64)
    for row in range(new):
        centre = (row + 0.5) * step - 0.5
        first = math.floor(centre)
        for tap in range(first - 1, first + 3):
            matrix[row, min(max(tap, 0), old - 1)] += cubic(centre - tap)
    return matrix


def embedded(
    frames: Tensor, kernel: Tensor, bias: Tensor, cls: Tensor, positions: Tensor, more: float = 0.0
) -> Tensor:
    """CLS and patch tokens of (n, 3, h, w) frames, with positions for their number of patches.

    ``more`` is added to that number before places are sampled, as DINOv2's own code does.
    """
    size = kernel.shape[-1]
    patches = frames.unfold(2, size, size).unfold(3, size, size)  # (n, 3, rows, columns, p, p)
    tokens = torch.einsum("ncrspq,dcpq->nrsd", patches, kernel) + bias
    grid, sides = math.isqrt(positions.shape[1] - 1), tokens.shape[1:3]
    down, across = (resize_matrix(grid, side, grid / (side + more)) for side in sides)
    table = positions[0, 1:].unflatten(0, (grid, grid))
    tokens = (tokens + torch.einsum("ra,cb,abd->rcd", down, across, table)).flatten(1, 2)
    first = (cls + positions[:, :1]).expand(len(frames), -1, -1)
    return torch.cat([first, tokens], 1)


def cls_tokens(state: State, config: dict[str, Any], frames: Tensor) -> Tensor:
    """CLS tokens of (n, 3, h, w) frames, before the projector, for the config of an encoder."""
    emb = "encoder.embeddings"
    x = embedded(
        frames,
        state[f"{emb}.patch_embeddings.projection.weight"],
        state[f"{emb}.patch_embeddings.projection.bias"],
        state[f"{emb}.cls_token"],
        state[f"{emb}.position_embeddings"],
    )
    heads = config.get("num_attention_heads", VIT_HEADS[config["size"]])
    depth = len({name.split(".")[2] for name in state if name.startswith("encoder.layers.")})
    for index in range(depth):
        layer = f"encoder.layers.{index}"
        entering = norm(state, f"{layer}.layernorm_before", x, 1e-12)
        q, k, v = (linear(state, f"{layer}.attention.{part}_proj", entering) for part in "qkv")
        x = x + linear(state, f"{layer}.attention.o_proj", attend(q, k, v, heads))
        entering = norm(state, f"{layer}.layernorm_after", x, 1e-12)
        x = x + feed_forward(state, f"{layer}.mlp.fc1", f"{layer}.mlp.fc2", entering)
    return norm(state, "encoder.layernorm", x, 1e-12)[:, 0]


def feed_forward(state: State, rise: str, fall: str, x: Tensor) -> Tensor:
    return linear(state, fall, F.gelu(linear(state, rise, x)))


def project(state: State, head: str, x: Tensor) -> Tensor:
    """A projection head, the identity when the state dict has none."""
    if f"{head}.net.0.weight" not in state:
        return x
    hidden = linear(state, f"{head}.net.0", x)
    if f"{head}.net.1.running_mean" in state:
        mean, variance = state[f"{head}.net.1.running_mean"], state[f"{head}.net.1.running_var"]
        hidden = (hidden - mean) / (variance + 1e-5).sqrt()
        hidden = hidden * state[f"{head}.net.1.weight"] + state[f"{head}.net.1.bias"]
    elif f"{head}.net.1.weight" in state:
        hidden = norm(state, f"{head}.net.1", hidden, 1e-5)
    return linear(state, f"{head}.net.3", F.gelu(hidden))


def encode(state: State, config: dict[str, Any], frames: Tensor) -> Tensor:
    """Projected latents of (n, 3, h, w) frames."""
    return project(state, "projector", cls_tokens(state, config["encoder"], frames))


def embed(state: State, blocks: Tensor) -> Tensor:
    """Embeddings of action blocks."""
    smoothed = blocks @ state["action_encoder.patch_embed.weight"][:, :, 0].T
    smoothed = smoothed + state["action_encoder.patch_embed.bias"]
    hidden = F.silu(linear(state, "action_encoder.embed.0", smoothed))
    return linear(state, "action_encoder.embed.2", hidden)


def predict(state: State, config: dict[str, Any], latents: Tensor, actions: Tensor) -> Tensor:
    """Projected prediction after the last of (t, dim) latents, under their embedded actions."""
    prefix = "predictor.transformer"
    x, c = latents + state["predictor.pos_embedding"][0, : len(latents)], actions
    if f"{prefix}.input_proj.weight" in state:
        x, c = linear(state, f"{prefix}.input_proj", x), linear(state, f"{prefix}.cond_proj", c)
    for index in range(config["depth"]):
        layer = f"{prefix}.layers.{index}"
        modulation = linear(state, f"{layer}.adaLN_modulation.1", F.silu(c))
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation.chunk(6, -1)
        entering = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift
        entering = norm(state, f"{layer}.attn.norm", entering, 1e-5)
        q, k, v = linear(state, f"{layer}.attn.to_qkv", entering).chunk(3, -1)
        mixed = attend(q, k, v, config["heads"], later(len(x)))
        if f"{layer}.attn.to_out.0.weight" in state:
            mixed = linear(state, f"{layer}.attn.to_out.0", mixed)
        x = x + gate * mixed
        entering = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + mlp_scale) + mlp_shift
        entering = norm(state, f"{layer}.mlp.net.0", entering, 1e-5)
        x = x + mlp_gate * feed_forward(state, f"{layer}.mlp.net.1", f"{layer}.mlp.net.4", entering)
    x = norm(state, f"{prefix}.norm", x, 1e-5)[-1]
    if f"{prefix}.output_proj.weight" in state:
        x = linear(state, f"{prefix}.output_proj", x)
    return project(state, "pred_proj", x)


def rollout(state: State, config: dict[str, Any], history: Tensor, blocks: Tensor) -> Tensor:
    """Latents after (h, dim) history latents under (h + H - 1, width) blocks."""
    longest, actions = config["predictor"]["num_frames"], embed(state, blocks)
    latents = list(history)
    while len(latents) <= len(blocks):
        window = slice(max(0, len(latents) - longest), len(latents))
        past = torch.stack(latents[window])
        latents.append(predict(state, config["predictor"], past, actions[window]))
    return torch.stack(latents[len(history) :])
