"""V-JEPA 2-AC in float64 NumPy, token by token, from its description."""

import math
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from jepa_reference import gelu, layer_norm, linear, softmax, standardise, turned
from scipy.spatial.transform import Rotation
from vjepa2_ac import tiny

Array = NDArray[np.float64]


class VJepa2AC:
    """Encoder, predictor and pose, one sum at a time where that is bearable."""

    def __init__(self, sizes: Any) -> None:  # noqa: ANN401 - of a script
        self.sizes = sizes
        self.encoder = {name: x.double().numpy() for name, x in tiny.encoder_state(sizes).items()}
        self.predictor = {
            name: x.double().numpy() for name, x in tiny.predictor_state(sizes).items()
        }

    def encode(self, frames: Array) -> Array:
        """Normalised frames (n, 3, side, side) to layer-normalised features (n, patches, width)."""
        return np.stack([self._encode(frame) for frame in frames])

    def _encode(self, frame: Array) -> Array:
        state, sizes = self.encoder, self.sizes
        clip = np.stack([frame] * tiny.TUBELET, axis=1)  # (3, 2, side, side)
        tokens, places = [], []
        for row in range(sizes.grid):
            for column in range(sizes.grid):
                top, left = row * sizes.patch, column * sizes.patch
                cut = clip[:, :, top : top + sizes.patch, left : left + sizes.patch]
                weight = state["patch_embed.proj.weight"].reshape(sizes.width, -1)
                tokens.append(weight @ cut.reshape(-1) + state["patch_embed.proj.bias"])
                places.append((0, row, column))
        x = np.stack(tokens)
        for i in range(sizes.depth):
            x = _block(state, f"blocks.{i}", x, places, sizes.heads)
        return standardise(layer_norm(state, "norm", x, 1e-6), 1e-5)

    def predict(self, features: Array, actions: Array, states: Array) -> Array:
        """Features (patches, width) after frames (t, patches, width) under actions (t, 7)."""
        state, sizes = self.predictor, self.sizes
        tokens, places = [], []
        for frame in range(len(features)):
            beside = [linear(state, "action_encoder", actions[frame])]
            if sizes.pose:
                beside.append(linear(state, "state_encoder", states[frame, :7]))
            if sizes.extrinsics:
                beside.append(linear(state, "extrinsics_encoder", states[frame, 7:]))
            tokens += beside
            places += [(frame, 0, 0)] * len(beside)
            for patch, feature in enumerate(features[frame]):
                tokens.append(linear(state, "predictor_embed", feature))
                places.append((frame, patch // sizes.grid, patch % sizes.grid))
        x = np.stack(tokens)
        for i in range(sizes.layers):
            x = _block(state, f"predictor_blocks.{i}", x, places, sizes.inner_heads)
        last = layer_norm(state, "predictor_norm", x[-(sizes.grid**2) :], 1e-6)
        return standardise(linear(state, "predictor_proj", last), 1e-5)

    def rollout(
        self, features: Array, states: Array, actions: Array, history: int
    ) -> tuple[Array, Array]:
        """Features and states of every frame, given ones first, by actions that leave frames."""
        seen, known = list(features), list(states)
        while len(seen) < len(actions) + 1:
            end = len(seen)
            start = max(0, end - history)
            window = np.stack(seen[start:]), actions[start:end], np.stack(known[start:])
            seen.append(self.predict(*window))
            known.append(self.after(known[-1], actions[end - 1]))
        return np.stack(seen), np.stack(known)

    def after(self, state: Array, action: Array) -> Array:
        """Where the arm is after an action; the camera stays."""
        if not self.sizes.pose:
            return state
        turn = Rotation.from_euler("xyz", action[3:6]) * Rotation.from_euler("xyz", state[3:6])
        grip = min(1.0, max(0.0, state[6] + action[6]))
        return np.concatenate([state[:3] + action[:3], turn.as_euler("xyz"), [grip], state[7:]])


def _block(
    state: dict[str, Array], name: str, x: Array, places: list[tuple[int, int, int]], heads: int
) -> Array:
    whole = linear(state, f"{name}.attn.qkv", layer_norm(state, f"{name}.norm1", x, 1e-6))
    q, k, v = (part.reshape(len(x), heads, -1) for part in np.split(whole, 3, axis=1))
    mixed = np.zeros_like(q)
    for head in range(heads):
        queries, keys = (
            [turned(one[token, head], places[token]) for token in range(len(x))] for one in (q, k)
        )
        for token, query in enumerate(queries):
            seen = [i for i, place in enumerate(places) if place[0] <= places[token][0]]
            scores = np.array([query @ keys[i] for i in seen]) / math.sqrt(q.shape[2])
            mixed[token, head] = softmax(scores) @ v[seen, head]
    x = x + linear(state, f"{name}.attn.proj", mixed.reshape(len(x), -1))
    inner = linear(state, f"{name}.mlp.fc1", layer_norm(state, f"{name}.norm2", x, 1e-6))
    return x + linear(state, f"{name}.mlp.fc2", gelu(inner))
