"""LeWM and PLDM inference in float64 NumPy, written from their description, one token at a time.

Takes the state dict under the 5.x transformer names and the config tree; shares no code with the
server.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from acpc.arrays import NDArray

Array = NDArray[np.float64]
State = dict[str, Array]

ERF = np.vectorize(math.erf, otypes=[np.float64])
VIT_HEADS = {"tiny": 3, "small": 6, "base": 12}


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + ERF(x / math.sqrt(2)))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def linear(state: State, name: str, x: Array) -> Array:
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", np.float64(0))


def standardise(x: Array, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)


def layer_norm(state: State, name: str, x: Array, eps: float) -> Array:
    return standardise(x, eps) * state[f"{name}.weight"] + state[f"{name}.bias"]


def softmax(scores: Array) -> Array:
    exponents = np.exp(scores - scores.max())
    return exponents / exponents.sum()


def attend(q: Array, k: Array, v: Array, heads: int, seen: Sequence[int]) -> Array:
    """Scaled dot-product attention, head by head; query i sees the first ``seen[i]`` tokens."""
    out, width = np.zeros_like(q), q.shape[1] // heads
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        for query, count in enumerate(seen):
            weights = softmax(k[:count, part] @ q[query, part] / math.sqrt(width))
            out[query, part] = weights @ v[:count, part]
    return out


def cubic(distance: float) -> float:
    """Keys' cubic convolution kernel with a = -0.75."""
    a, t = -0.75, abs(distance)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def resize_matrix(old: int, new: int) -> Array:
    """Bicubic resize of one axis, pixel centres at half integers, edges repeated."""
    matrix = np.zeros((new, old))
    for row in range(new):
        centre = (row + 0.5) * old / new - 0.5
        first = math.floor(centre)
        for tap in range(first - 1, first + 3):
            matrix[row, min(max(tap, 0), old - 1)] += cubic(centre - tap)
    return matrix


def encode_frame(state: State, config: dict[str, Any], frame: Array) -> Array:
    """CLS token of one (3, h, w) frame, before the projector."""
    size = config["patch_size"]
    heads = config.get("num_attention_heads", VIT_HEADS[config["size"]])
    eps = 1e-12
    emb = "encoder.embeddings"
    rows, columns = frame.shape[1] // size, frame.shape[2] // size
    kernel = state[f"{emb}.patch_embeddings.projection.weight"]
    tokens = [state[f"{emb}.cls_token"][0, 0]]
    for row in range(rows):
        for column in range(columns):
            patch = frame[:, row * size : (row + 1) * size, column * size : (column + 1) * size]
            tokens.append(
                np.tensordot(kernel, patch, 3) + state[f"{emb}.patch_embeddings.projection.bias"]
            )
    positions = state[f"{emb}.position_embeddings"][0]
    grid = config["image_size"] // size
    table = positions[1:].reshape(grid, grid, -1)
    down, across = resize_matrix(grid, rows), resize_matrix(grid, columns)
    table = np.einsum("ra,cb,abd->rcd", down, across, table).reshape(rows * columns, -1)
    x = np.stack(tokens) + np.concatenate((positions[:1], table))
    depth = len({name.split(".")[2] for name in state if name.startswith("encoder.layers.")})
    for index in range(depth):
        layer = f"encoder.layers.{index}"
        normed = layer_norm(state, f"{layer}.layernorm_before", x, eps)
        q, k, v = (linear(state, f"{layer}.attention.{part}_proj", normed) for part in "qkv")
        mixed = attend(q, k, v, heads, [len(x)] * len(x))
        x = x + linear(state, f"{layer}.attention.o_proj", mixed)
        normed = layer_norm(state, f"{layer}.layernorm_after", x, eps)
        x = x + linear(state, f"{layer}.mlp.fc2", gelu(linear(state, f"{layer}.mlp.fc1", normed)))
    return layer_norm(state, "encoder.layernorm", x, eps)[0]


def project(state: State, head: str, x: Array) -> Array:
    """A projection head, the identity when the state dict has none."""
    if f"{head}.net.0.weight" not in state:
        return x
    hidden = linear(state, f"{head}.net.0", x)
    if f"{head}.net.1.running_mean" in state:
        mean, variance = state[f"{head}.net.1.running_mean"], state[f"{head}.net.1.running_var"]
        hidden = (hidden - mean) / np.sqrt(variance + 1e-5)
        hidden = hidden * state[f"{head}.net.1.weight"] + state[f"{head}.net.1.bias"]
    elif f"{head}.net.1.weight" in state:
        hidden = layer_norm(state, f"{head}.net.1", hidden, 1e-5)
    return linear(state, f"{head}.net.3", gelu(hidden))


def embed_block(state: State, block: Array) -> Array:
    """Embedding of one action block."""
    smoothed = state["action_encoder.patch_embed.weight"][:, :, 0] @ block
    smoothed = smoothed + state["action_encoder.patch_embed.bias"]
    hidden = silu(linear(state, "action_encoder.embed.0", smoothed))
    return linear(state, "action_encoder.embed.2", hidden)


def predict(state: State, config: dict[str, Any], latents: Array, actions: Array) -> Array:
    """Projected prediction after every token, from (t, dim) latents and action embeddings."""
    prefix = "predictor.transformer"
    x = latents + state["predictor.pos_embedding"][0, : len(latents)]
    c = actions
    if f"{prefix}.input_proj.weight" in state:
        x, c = linear(state, f"{prefix}.input_proj", x), linear(state, f"{prefix}.cond_proj", c)
    for index in range(config["depth"]):
        layer = f"{prefix}.layers.{index}"
        modulation = linear(state, f"{layer}.adaLN_modulation.1", silu(c))
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = np.split(modulation, 6, axis=-1)
        entering = standardise(x, 1e-6) * (1 + scale) + shift
        qkv = linear(
            state, f"{layer}.attn.to_qkv", layer_norm(state, f"{layer}.attn.norm", entering, 1e-5)
        )
        mixed = attend(*np.split(qkv, 3, axis=-1), config["heads"], range(1, len(x) + 1))
        if f"{layer}.attn.to_out.0.weight" in state:
            mixed = linear(state, f"{layer}.attn.to_out.0", mixed)
        x = x + gate * mixed
        entering = standardise(x, 1e-6) * (1 + mlp_scale) + mlp_shift
        hidden = layer_norm(state, f"{layer}.mlp.net.0", entering, 1e-5)
        hidden = gelu(linear(state, f"{layer}.mlp.net.1", hidden))
        x = x + mlp_gate * linear(state, f"{layer}.mlp.net.4", hidden)
    x = layer_norm(state, f"{prefix}.norm", x, 1e-5)
    if f"{prefix}.output_proj.weight" in state:
        x = linear(state, f"{prefix}.output_proj", x)
    return np.stack([project(state, "pred_proj", token) for token in x])


def encode(state: State, config: dict[str, Any], frames: Array) -> Array:
    """Projected latents of (n, 3, h, w) frames."""
    return np.stack(
        [
            project(state, "projector", encode_frame(state, config["encoder"], frame))
            for frame in frames
        ]
    )


def rollout(state: State, config: dict[str, Any], history: Array, blocks: Array) -> Array:
    """Latents after (h, dim) history latents under (h + H - 1, width) blocks."""
    latents = list(history)
    longest = config["predictor"]["num_frames"]
    while len(latents) <= len(blocks):
        window = range(max(0, len(latents) - longest), len(latents))
        past = np.stack([latents[frame] for frame in window])
        actions = np.stack([embed_block(state, blocks[frame]) for frame in window])
        latents.append(predict(state, config["predictor"], past, actions)[-1])
    return np.stack(latents[len(history) :])
