"""V-JEPA 2-AC in float64 NumPy, token by token, from its description; and files as it is saved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from scipy.special import erf

Array = NDArray[np.float64]
State = dict[str, torch.Tensor]
TUBELET = 2


@dataclass(frozen=True)
class Sizes:
    """Of one checkpoint."""

    width: int = 36
    depth: int = 2
    heads: int = 2
    hidden: int = 60
    patch: int = 4
    grid: int = 3
    inner: int = 28
    layers: int = 2
    inner_heads: int = 2
    pose: bool = True
    extrinsics: bool = False

    @property
    def side(self) -> int:
        """Of a frame, in pixels."""
        return self.patch * self.grid

    @property
    def state(self) -> int:
        """Numbers that come with a frame."""
        return 7 * self.pose + 6 * self.extrinsics

    def training(self, history: int = 3) -> dict[str, Any]:
        """What the converter must be told."""
        return {
            "image_size": self.side,
            "history": history,
            "encoder_heads": self.heads,
            "predictor_heads": self.inner_heads,
            "extrinsics": self.extrinsics,
        }


def _trunk(prefix: str, width: int, hidden: int, depth: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(depth):
        for name, rows, columns in (
            ("attn.qkv", 3 * width, width), ("attn.proj", width, width),
            ("mlp.fc1", hidden, width), ("mlp.fc2", width, hidden),
        ):  # fmt: skip
            shapes[f"{prefix}.{i}.{name}.weight"] = (rows, columns)
            shapes[f"{prefix}.{i}.{name}.bias"] = (rows,)
        for norm in ("norm1", "norm2"):
            shapes[f"{prefix}.{i}.{norm}.weight"] = shapes[f"{prefix}.{i}.{norm}.bias"] = (width,)
    return shapes


def encoder_state(sizes: Sizes) -> State:
    """Random tensors of the encoder, without prefixes."""
    wide = sizes.width
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed.proj.weight": (wide, 3, TUBELET, sizes.patch, sizes.patch),
        "patch_embed.proj.bias": (wide,), "norm.weight": (wide,), "norm.bias": (wide,),
    }  # fmt: skip
    return _random(shapes | _trunk("blocks", wide, sizes.hidden, sizes.depth), seed=1)


def predictor_state(sizes: Sizes) -> State:
    """Random tensors of the predictor, without prefixes."""
    wide, inner = sizes.width, sizes.inner
    inputs = {"predictor_embed": wide, "action_encoder": 7}
    inputs |= {"state_encoder": 7} if sizes.pose else {}
    inputs |= {"extrinsics_encoder": 6}  # always made, read only where asked for
    shapes: dict[str, tuple[int, ...]] = {}
    for name, count in inputs.items():
        shapes |= {f"{name}.weight": (inner, count), f"{name}.bias": (inner,)}
    shapes |= {"predictor_norm.weight": (inner,), "predictor_norm.bias": (inner,)}
    shapes |= {"predictor_proj.weight": (wide, inner), "predictor_proj.bias": (wide,)}
    return _random(shapes | _trunk("predictor_blocks", inner, 4 * inner, sizes.layers), seed=2)


def _random(shapes: dict[str, tuple[int, ...]], seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        fan = math.prod(shape[1:])
        value = torch.randn(shape, generator=generator) * (fan**-0.5 if len(shape) > 1 else 0.2)
        state[name] = value + 1 if "norm" in name and name.endswith("weight") else value
    return state


def checkpoint(sizes: Sizes) -> dict[str, Any]:
    """What V-JEPA 2-AC's training saves."""
    encoder = {f"module.backbone.{name}": x for name, x in encoder_state(sizes).items()}
    encoder["module.backbone.pos_embed"] = torch.ones(1, sizes.grid**2, sizes.width)
    return {
        "encoder": encoder,
        "predictor": {f"module.{name}": x for name, x in predictor_state(sizes).items()},
        "target_encoder": encoder,
        "opt": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 1e-4}]},
        "scaler": None,
        "epoch": 315,
        "loss": 0.3,
        "batch_size": 8,
        "world_size": 32,
        "lr": 4e-4,
    }


def write(folder: Path, sizes: Sizes) -> Path:
    """The file of V-JEPA 2-AC."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vjepa2-ac-tiny.pt"
    torch.save(checkpoint(sizes), path)
    return path


def write_jepa_wms(folder: Path, sizes: Sizes) -> tuple[Path, Path]:
    """The file of jepa-wms, and that of the encoder, which it leaves where it was."""
    folder.mkdir(parents=True, exist_ok=True)
    source, encoder = folder / "vjepa2_ac_tiny.pth.tar", folder / "vjepa2_vit_tiny.pth"
    saved = checkpoint(sizes)
    torch.save({"encoder": saved.pop("encoder"), "epoch": 9}, encoder)
    renamed = {
        name.replace("state_encoder", "proprio_encoder"): x
        for name, x in saved["predictor"].items()
        if "extrinsics" not in name
    }
    torch.save({"predictor": renamed, "opt": None, "scaler": None, "epoch": 64}, source)
    return source, encoder


class VJepa2AC:
    """Encoder, predictor and pose, one sum at a time where that is bearable."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.encoder = {name: x.double().numpy() for name, x in encoder_state(sizes).items()}
        self.predictor = {name: x.double().numpy() for name, x in predictor_state(sizes).items()}

    def encode(self, frames: Array) -> Array:
        """Normalised frames (n, 3, side, side) to layer-normalised features (n, patches, width)."""
        return np.stack([self._encode(frame) for frame in frames])

    def _encode(self, frame: Array) -> Array:
        state, sizes = self.encoder, self.sizes
        clip = np.stack([frame] * TUBELET, axis=1)  # (3, 2, side, side)
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
