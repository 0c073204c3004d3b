"""Writes a tiny V-JEPA 2-AC with random weights, as its training saves one; see README.md."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TUBELET = 2
State = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]


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


def _trunk(prefix: str, width: int, hidden: int, depth: int) -> Shapes:
    shapes: Shapes = {}
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
    shapes: Shapes = {
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
    shapes: Shapes = {}
    for name, count in inputs.items():
        shapes |= {f"{name}.weight": (inner, count), f"{name}.bias": (inner,)}
    shapes |= {"predictor_norm.weight": (inner,), "predictor_norm.bias": (inner,)}
    shapes |= {"predictor_proj.weight": (wide, inner), "predictor_proj.bias": (wide,)}
    return _random(shapes | _trunk("predictor_blocks", inner, 4 * inner, sizes.layers), seed=2)


def _random(shapes: Shapes, seed: int) -> State:
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


def main(arguments: list[str] | None = None) -> None:
    """Write the file and say where."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    print(write(parser.parse_args(arguments).out, Sizes()))


if __name__ == "__main__":
    main()
