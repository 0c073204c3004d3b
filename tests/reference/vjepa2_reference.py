"""V-JEPA 2-AC in float64 NumPy, token by token, from its description."""

import math
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from scipy.spatial.transform import Rotation
from scipy.special import erf
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
        return _standardise(_norm(state, "norm", x), 1e-5)

    def predict(self, features: Array, actions: Array, states: Array) -> Array:
        """Features (patches, width) after frames (t, patches, width) under actions (t, 7)."""
        state, sizes = self.predictor, self.sizes
        tokens, places = [], []
        for frame in range(len(features)):
            beside = [_linear(state, "action_encoder", actions[frame])]
            if sizes.pose:
                beside.append(_linear(state, "state_encoder", states[frame, :7]))
            if sizes.extrinsics:
                beside.append(_linear(state, "extrinsics_encoder", states[frame, 7:]))
            tokens += beside
            places += [(frame, 0, 0)] * len(beside)
            for patch, feature in enumerate(features[frame]):
                tokens.append(_linear(state, "predictor_embed", feature))
                places.append((frame, patch // sizes.grid, patch % sizes.grid))
        x = np.stack(tokens)
        for i in range(sizes.layers):
            x = _block(state, f"predictor_blocks.{i}", x, places, sizes.inner_heads)
        last = _norm(state, "predictor_norm", x[-(sizes.grid**2) :])
        return _standardise(_linear(state, "predictor_proj", last), 1e-5)

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
    whole = _linear(state, f"{name}.attn.qkv", _norm(state, f"{name}.norm1", x))
    q, k, v = (part.reshape(len(x), heads, -1) for part in np.split(whole, 3, axis=1))
    mixed = np.zeros_like(q)
    for head in range(heads):
        turned = [
            [_turn(one[token, head], places[token]) for token in range(len(x))] for one in (q, k)
        ]
        for token, query in enumerate(turned[0]):
            seen = [i for i, place in enumerate(places) if place[0] <= places[token][0]]
            scores = np.array([query @ turned[1][i] for i in seen]) / math.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max())
            mixed[token, head] = (weights / weights.sum()) @ v[seen, head]
    x = x + _linear(state, f"{name}.attn.proj", mixed.reshape(len(x), -1))
    inner = _linear(state, f"{name}.mlp.fc1", _norm(state, f"{name}.norm2", x))
    gelu = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
    return x + _linear(state, f"{name}.mlp.fc2", gelu)


def _turn(vector: Array, place: tuple[int, int, int]) -> Array:
    """A head's coordinates at their frame, row and column; a third of them for each."""
    out = vector.copy()
    part = 2 * (len(vector) // 3 // 2)
    for axis, position in enumerate(place):
        for i in range(part):
            # The frequency of a coordinate counts on over the pairs, as training had it.
            angle = position / 10_000 ** ((i % (part // 2)) / (part / 2))
            here, pair = axis * part + i, axis * part + (i ^ 1)
            sign = -1 if i % 2 == 0 else 1
            out[here] = vector[here] * math.cos(angle) + sign * vector[pair] * math.sin(angle)
    return out


def _linear(state: dict[str, Array], name: str, x: Array) -> Array:
    out: Array = x @ state[f"{name}.weight"].T + state[f"{name}.bias"]
    return out


def _norm(state: dict[str, Array], name: str, x: Array) -> Array:
    out: Array = _standardise(x, 1e-6) * state[f"{name}.weight"] + state[f"{name}.bias"]
    return out


def _standardise(x: Array, epsilon: float) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    out: Array = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return out
