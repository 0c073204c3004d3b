"""jepa-wms' DINO-WM in float64, as its source describes it, on the tensors that it saves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

DIM_HEAD = 64
State = dict[str, Tensor]


@dataclass(frozen=True)
class Sizes:
    """Of one checkpoint; slots are (inputs, width), and 0 inputs leave one out."""

    width: int = 128
    backbone_depth: int = 2
    patch: int = 4
    trained_grid: int = 5
    grid: int = 3
    frames: int = 3
    depth: int = 2
    heads: int = 2
    hidden: int = 48
    action: tuple[int, int] = (6, 10)
    proprio: tuple[int, int] = (4, 8)

    @property
    def dim(self) -> int:
        """Coordinates of one token with its slots."""
        return self.width + self.action[1] + (self.proprio[1] if self.proprio[0] else 0)


def backbone_state(sizes: Sizes, seed: int = 0) -> State:
    """Random tensors under the names of DINOv2's own releases."""
    wide = sizes.width
    shapes = {
        "cls_token": (1, 1, wide),
        "pos_embed": (1, 1 + sizes.trained_grid**2, wide),
        "mask_token": (1, wide),
        "patch_embed.proj.weight": (wide, 3, sizes.patch, sizes.patch),
        "patch_embed.proj.bias": (wide,),
        "norm.weight": (wide,),
        "norm.bias": (wide,),
    }
    for i in range(sizes.backbone_depth):
        for name, rows in (("norm1", 0), ("norm2", 0), ("attn.qkv", 3), ("attn.proj", 1)):
            shapes[f"blocks.{i}.{name}.weight"] = (rows * wide, wide) if rows else (wide,)
            shapes[f"blocks.{i}.{name}.bias"] = (max(1, rows) * wide,)
        shapes |= {f"blocks.{i}.ls{half}.gamma": (wide,) for half in (1, 2)}
        shapes |= _linear(f"blocks.{i}.mlp.fc1", wide, 4 * wide)
        shapes |= _linear(f"blocks.{i}.mlp.fc2", 4 * wide, wide)
    return _random(shapes, seed)


def checkpoint(sizes: Sizes, seed: int = 1, prefix: str = "module.") -> dict[str, object]:
    """What training saves, its attention masks and the state of its optimizer with it."""
    dim, inner, tokens = sizes.dim, sizes.heads * DIM_HEAD, sizes.frames * sizes.grid**2
    shapes: dict[str, tuple[int, ...]] = {
        "pos_embedding": (1, tokens, dim),
        "transformer.norm.weight": (dim,),
        "transformer.norm.bias": (dim,),
    }
    for i in range(sizes.depth):
        layer = f"transformer.layers.{i}"
        shapes |= {f"{layer}.{norm}.weight": (dim,) for norm in ("0.norm", "1.net.0")}
        shapes |= {f"{layer}.{norm}.bias": (dim,) for norm in ("0.norm", "1.net.0")}
        shapes[f"{layer}.0.to_qkv.weight"] = (3 * inner, dim)
        shapes |= _linear(f"{layer}.0.to_out.0", inner, dim)
        shapes |= _linear(f"{layer}.1.net.1", dim, sizes.hidden)
        shapes |= _linear(f"{layer}.1.net.4", sizes.hidden, dim)
    predictor = _random(shapes, seed)
    frame = torch.arange(tokens) // sizes.grid**2
    for i in range(sizes.depth):
        mask = (frame[:, None] >= frame[None, :]).float()
        predictor[f"transformer.layers.{i}.0.bias"] = mask[None, None]
    found: dict[str, object] = {
        "predictor": {prefix + name: tensor for name, tensor in predictor.items()},
        "opt": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 1e-4}]},
        "scaler": None,
        "epoch": 50,
    }
    for name, (inputs, wide) in (("action", sizes.action), ("proprio", sizes.proprio)):
        if inputs:
            slot = {"patch_embed.weight": (wide, inputs, 1), "patch_embed.bias": (wide,)}
            state = _random(slot, seed + inputs)
            found[f"{name}_encoder"] = {prefix + key: tensor for key, tensor in state.items()}
    return found


def write(folder: Path, sizes: Sizes) -> tuple[Path, Path]:
    """The checkpoint and its backbone as files."""
    folder.mkdir(parents=True, exist_ok=True)
    source, backbone = folder / "dino_wm_tiny.pth.tar", folder / "dinov2_tiny_pretrain.pth"
    torch.save(checkpoint(sizes), source)
    torch.save(backbone_state(sizes), backbone)
    return source, backbone


class DinoWm:
    """Encoder and predictor, computed tensor by tensor."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.backbone = {name: value.double() for name, value in backbone_state(sizes).items()}
        saved = checkpoint(sizes, prefix="")
        self.parts: dict[str, State] = {
            key: {name: value.double() for name, value in part.items()}
            for key, part in saved.items()
            if isinstance(part, dict) and key != "opt"
        }

    def encode(self, pixels: Tensor) -> Tensor:
        """Pixels (n, 3, side, side) in [0, 1] to patch tokens (n, patches, width)."""
        state, sizes = self.backbone, self.sizes
        frames = (pixels.double() - 0.5) / 0.5
        size, grid = sizes.patch, sizes.grid
        rows = []
        for i in range(grid):
            for j in range(grid):
                cut = frames[:, :, i * size : (i + 1) * size, j * size : (j + 1) * size]
                product = torch.einsum("nchw,dchw->nd", cut, state["patch_embed.proj.weight"])
                rows.append(product + state["patch_embed.proj.bias"])
        x = torch.stack(rows, dim=1)
        cls = state["cls_token"].expand(len(x), -1, -1)
        x = torch.cat([cls, x], dim=1) + self.positions()
        for i in range(sizes.backbone_depth):
            block = f"blocks.{i}."
            q, k, v = _project(state, block + "attn.qkv", _norm(state, block + "norm1", x)).chunk(
                3, dim=-1
            )
            mixed = _attend(q, k, v, sizes.width // DIM_HEAD, None)
            x = x + state[block + "ls1.gamma"] * _project(state, block + "attn.proj", mixed)
            inner = _gelu(_project(state, block + "mlp.fc1", _norm(state, block + "norm2", x)))
            x = x + state[block + "ls2.gamma"] * _project(state, block + "mlp.fc2", inner)
        return _norm(state, "norm", x)[:, 1:]

    def positions(self) -> Tensor:
        """Bicubic at the places that a scale of (grid + 0.1) / trained_grid gives."""
        stored, n, grid = self.backbone["pos_embed"], self.sizes.trained_grid, self.sizes.grid
        if n == grid:
            return stored
        step = n / (grid + 0.1)
        weights = torch.zeros(grid, n, dtype=torch.float64)
        for i in range(grid):
            place = (i + 0.5) * step - 0.5
            for j in range(math.floor(place) - 1, math.floor(place) + 3):
                weights[i, min(max(j, 0), n - 1)] += _cubic(abs(place - j))
        square = stored[0, 1:].unflatten(0, (n, n))
        resized = torch.einsum("ia,jb,abd->ijd", weights, weights, square)
        return torch.cat([stored[:, :1], resized.flatten(0, 1)[None]], dim=1)

    def slot(self, name: str, values: Tensor) -> Tensor:
        """A slot's embedding of rows (..., inputs)."""
        state = self.parts[f"{name}_encoder"]
        weight = state["patch_embed.weight"][:, :, 0]
        return values.double() @ weight.T + state["patch_embed.bias"]

    def unroll(self, visual: Tensor, proprio: Tensor | None, actions: Tensor, window: int) -> State:
        """Tokens (h, patches, width) forward under blocks (h - 1 + H, inputs)."""
        patches, width = self.sizes.grid**2, self.sizes.width
        acts = self.slot("action", actions)[:, None].expand(-1, patches, -1)
        parts = [visual]
        if proprio is not None:
            parts.append(self.slot("proprio", proprio)[:, None].expand(-1, patches, -1))
        seen = torch.cat(parts, dim=-1)
        for end in range(len(seen), len(actions) + 1):
            start = max(0, end - window)
            tokens = torch.cat([seen[start:end], acts[start:end]], dim=-1)
            out = self.predict(tokens.flatten(0, 1)).unflatten(0, (-1, patches))[-1]
            seen = torch.cat([seen, out[None, :, : seen.shape[-1]]])
        return {"visual": seen[..., :width], "proprio": seen[..., width:]}

    def predict(self, x: Tensor) -> Tensor:
        """What the predictor makes of tokens (frames * patches, dim), causal between frames."""
        state, sizes = self.parts["predictor"], self.sizes
        x = x + state["pos_embedding"][0, : len(x)]
        frame = torch.arange(len(x)) // sizes.grid**2
        hidden = frame[None, :] > frame[:, None]
        for i in range(sizes.depth):
            layer = f"transformer.layers.{i}."
            normed = _norm(state, layer + "0.norm", x, 1e-5)
            q, k, v = (normed @ state[layer + "0.to_qkv.weight"].T).chunk(3, dim=-1)
            mixed = _attend(q, k, v, sizes.heads, hidden)
            x = x + _project(state, layer + "0.to_out.0", mixed)
            normed = _norm(state, layer + "1.net.0", x, 1e-5)
            inner = _gelu(_project(state, layer + "1.net.1", normed))
            x = x + _project(state, layer + "1.net.4", inner)
        return _norm(state, "transformer.norm", x, 1e-5)


def _attend(q: Tensor, k: Tensor, v: Tensor, heads: int, hidden: Tensor | None) -> Tensor:
    outs = []
    size = q.shape[-1] // heads
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = q[..., part] @ k[..., part].transpose(-1, -2) / math.sqrt(size)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        outs.append(scores.exp() / scores.exp().sum(dim=-1, keepdim=True) @ v[..., part])
    return torch.cat(outs, dim=-1)


def _norm(state: State, name: str, x: Tensor, eps: float = 1e-6) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    scale = (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return centred / scale * state[f"{name}.weight"] + state[f"{name}.bias"]


def _project(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def _gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def _cubic(distance: float, a: float = -0.75) -> float:
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * (distance**3 - 5 * distance**2 + 8 * distance - 4) if distance < 2 else 0.0


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _random(shapes: dict[str, tuple[int, ...]], seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.1 if len(shape) > 1 else 0.5)
        for name, shape in shapes.items()
    }
