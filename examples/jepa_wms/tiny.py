"""Writes a tiny world model with random weights as jepa-wms' training saves one, and its backbone.

python examples/jepa_wms/tiny.py jepa_wm --out tiny
python examples/jepa_wms/convert.py tiny/jepa_wm_tiny.pth.tar \
        --backbone tiny/dinov2_tiny_pretrain.pth --out ~/checkpoints/tiny \
        --image-size 12 --heads 2
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

DIM_HEAD = 64
KINDS = ("dino_wm", "jepa_wm")
BACKBONES = ("dinov2_tiny_pretrain.pth", "dinov3_tiny_pretrain.pth")
State = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Sizes:
    """Of one checkpoint; slots are (inputs, width), and 0 inputs leave one out.

    ``frames`` and ``hidden`` are DINO-WM's, ``inner`` is JEPA-WM's. With ``registers`` the backbone
    is a DINOv3, which has no trained grid.
    """

    width: int = 128
    backbone_depth: int = 2
    patch: int = 4
    trained_grid: int = 5
    registers: int = 0
    grid: int = 3
    frames: int = 3
    depth: int = 2
    heads: int = 2
    hidden: int = 48
    inner: int = 46
    action: tuple[int, int] = (6, 10)
    proprio: tuple[int, int] = (4, 8)

    @property
    def slot(self) -> int:
        """Coordinates of proprioception beside a token's."""
        return self.proprio[1] if self.proprio[0] else 0


def backbone_state(sizes: Sizes, seed: int = 0) -> State:
    """Random tensors under the names of DINOv2's or DINOv3's own releases."""
    wide, registers = sizes.width, sizes.registers
    positions = (1, 1 + sizes.trained_grid**2, wide)
    shapes: Shapes = {
        "cls_token": (1, 1, wide),
        "mask_token": (1, wide),
        **({"storage_tokens": (1, registers, wide)} if registers else {"pos_embed": positions}),
        "patch_embed.proj.weight": (wide, 3, sizes.patch, sizes.patch),
        "patch_embed.proj.bias": (wide,),
        **_norm("norm", wide),
    }
    for i in range(sizes.backbone_depth):
        block = f"blocks.{i}"
        shapes |= _norm(f"{block}.norm1", wide) | _norm(f"{block}.norm2", wide)
        shapes |= {f"{block}.ls{half}.gamma": (wide,) for half in (1, 2)}
        shapes |= _linear(f"{block}.attn.qkv", wide, 3 * wide)
        shapes |= _linear(f"{block}.attn.proj", wide, wide)
        shapes |= _linear(f"{block}.mlp.fc1", wide, 4 * wide)
        shapes |= _linear(f"{block}.mlp.fc2", 4 * wide, wide)
    state = _random(shapes, seed)
    if registers:
        quarter = DIM_HEAD // 4
        state["rope_embed.periods"] = 100.0 ** (torch.arange(quarter) / quarter)
        mask = torch.ones(3, wide)
        mask[1] = 0
        for i in range(sizes.backbone_depth):
            state[f"blocks.{i}.attn.qkv.bias_mask"] = mask.flatten()
    return state


def checkpoint(
    sizes: Sizes, kind: str = "dino_wm", seed: int = 1, prefix: str = "module."
) -> dict[str, object]:
    """What training saves, the state of its optimizer with it."""
    if kind == "dino_wm":
        slots, predictor = ("action", "proprio"), _dino_wm(sizes, seed)
    else:
        slots, predictor = ("proprio",), _random(_jepa_wm(sizes), seed)
    found: dict[str, object] = {
        "predictor": {prefix + name: tensor for name, tensor in predictor.items()},
        "opt": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 1e-4}]},
        "scaler": None,
        "epoch": 50,
    }
    for name in slots:
        inputs, wide = getattr(sizes, name)
        if inputs:
            slot = {"patch_embed.weight": (wide, inputs, 1), "patch_embed.bias": (wide,)}
            state = _random(slot, seed + inputs)
            found[f"{name}_encoder"] = {prefix + key: tensor for key, tensor in state.items()}
    return found


def write(folder: Path, sizes: Sizes, kind: str = "dino_wm") -> tuple[Path, Path]:
    """The checkpoint and its backbone as files."""
    folder.mkdir(parents=True, exist_ok=True)
    source, backbone = folder / f"{kind}_tiny.pth.tar", folder / BACKBONES[sizes.registers > 0]
    torch.save(checkpoint(sizes, kind), source)
    torch.save(backbone_state(sizes), backbone)
    return source, backbone


def _dino_wm(sizes: Sizes, seed: int) -> State:
    """Its predictor's tensors, with the attention masks that training saves."""
    dim = sizes.width + sizes.action[1] + sizes.slot
    inner, tokens = sizes.heads * DIM_HEAD, sizes.frames * sizes.grid**2
    shapes: Shapes = {"pos_embedding": (1, tokens, dim), **_norm("transformer.norm", dim)}
    for i in range(sizes.depth):
        layer = f"transformer.layers.{i}"
        shapes |= _norm(f"{layer}.0.norm", dim) | _norm(f"{layer}.1.net.0", dim)
        shapes[f"{layer}.0.to_qkv.weight"] = (3 * inner, dim)
        shapes |= _linear(f"{layer}.0.to_out.0", inner, dim)
        shapes |= _linear(f"{layer}.1.net.1", dim, sizes.hidden)
        shapes |= _linear(f"{layer}.1.net.4", sizes.hidden, dim)
    frame = torch.arange(tokens) // sizes.grid**2
    mask = (frame[:, None] >= frame[None, :]).float()[None, None]
    masks = {f"transformer.layers.{i}.0.bias": mask for i in range(sizes.depth)}
    return _random(shapes, seed) | masks


def _jepa_wm(sizes: Sizes) -> Shapes:
    dim = sizes.inner + sizes.slot
    shapes = _norm("predictor_norm", dim) | _linear("action_encoder", sizes.action[0], dim)
    shapes |= _linear("predictor_embed", sizes.width, sizes.inner)
    shapes |= _linear("predictor_proj", sizes.inner, sizes.width)
    for i in range(sizes.depth):
        block = f"predictor_blocks.{i}"
        shapes |= _norm(f"{block}.norm1", dim) | _norm(f"{block}.norm2", dim)
        shapes |= _linear(f"{block}.attn.qkv", dim, 3 * dim)
        shapes |= _linear(f"{block}.attn.proj", dim, dim)
        shapes |= _linear(f"{block}.mlp.fc1", dim, 4 * dim)
        shapes |= _linear(f"{block}.mlp.fc2", 4 * dim, dim)
        shapes |= _linear(f"{block}.adaLN_modulation.1", dim, 6 * dim)
    return shapes


def _norm(name: str, wide: int) -> Shapes:
    return {f"{name}.weight": (wide,), f"{name}.bias": (wide,)}


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _random(shapes: Shapes, seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.1 if len(shape) > 1 else 0.5)
        for name, shape in shapes.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one kind of file and say where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    print(*write(asked.out, Sizes(), asked.kind), sep="\n")


if __name__ == "__main__":
    main()
