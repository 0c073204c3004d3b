"""Reads the frozen backbones of dino_wm's and jepa-wms' models, which their files do not hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from acpc_server.errors import UnsafeCheckpoint
from acpc_server.importing.archive import unsafe
from acpc_server.importing.facts import count
from acpc_server.models import JsonObject, StateReader
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD

DIM_HEAD = 64  # of every published size
# Names of the releases of DINOv2 and DINOv3, and those of transformers' Dinov2Model.
BACKBONE_NAMES = (
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^storage_tokens$", "embeddings.register_tokens"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^norm\.", "layernorm."),
    (r"^blocks\.(\d+)\.attn\.proj\.", r"encoder.layer.\1.attention.output.dense."),
    (r"^blocks\.(\d+)\.ls([12])\.gamma$", r"encoder.layer.\1.layer_scale\2.lambda1"),
    (r"^blocks\.", "encoder.layer."),
)
QKV = re.compile(r"^blocks\.(\d+)\.attn\.qkv\.(weight|bias)$")
POSITIONS = "embeddings.position_embeddings"
REGISTERS = "embeddings.register_tokens"
PATCHES = "embeddings.patch_embeddings.projection.weight"
PATCH_BIAS = "embeddings.patch_embeddings.projection.bias"
DINOV3_AXES = {REGISTERS: 3, "encoder.layer.0.mlp.fc1.weight": 2}
DINOV3_PERIODS, DINOV3_THETA = "rope_embed.periods", 100.0


def read_backbone(
    path: Path, image_size: int | None, trained_mean: Sequence[float], trained_std: Sequence[float]
) -> tuple[dict[str, Tensor], int]:
    """A backbone's tensors for frames as the server gives them, and the side of these in pixels.

    The server normalises with ImageNet's statistics; the patch projection is made to undo that.
    Frames have one size, for which DINOv2's positions are resampled as its own code does.
    """
    stored = StateReader(path.name, path.read_bytes(), {}).tensors
    return prepare_backbone(path.name, stored, image_size, trained_mean, trained_std)


def prepare_backbone(
    filename: str,
    tensors: Mapping[str, Tensor],
    image_size: int | None,
    trained_mean: Sequence[float],
    trained_std: Sequence[float],
) -> tuple[dict[str, Tensor], int]:
    """As :func:`read_backbone`, of tensors that a file of this name holds."""
    stored = dict(tensors)
    _check_stored(filename, stored)
    periods = stored.pop(DINOV3_PERIODS, None)
    state = renamed(stored)
    axes = {PATCHES: 4, PATCH_BIAS: 1, **({POSITIONS: 3} if periods is None else DINOV3_AXES)}
    for name, ndim in axes.items():
        if name not in state or state[name].ndim != ndim or not state[name].numel():
            wanted = "a backbone's weights, as DINOv2 or DINOv3 publish them, are wanted"
            raise unsafe(filename, f"no {name} of {ndim} axes; {wanted}")
    weight, bias = state[PATCHES].double(), state[PATCH_BIAS].double()
    if weight.shape[1] != len(IMAGENET_MEAN) or bias.shape != weight.shape[:1]:
        problem = f"patches of shape {tuple(weight.shape)}, bias {tuple(bias.shape)}; RGB is wanted"
        raise unsafe(filename, problem)
    if periods is None:
        image_size = image_size or 224
        grid, trained = image_size // weight.shape[-1], state[POSITIONS].shape[1] - 1
        if grid < 1 or math.isqrt(trained) ** 2 != trained:
            problem = f"{trained} positions and {grid} patches a side; frames of another size"
            raise unsafe(filename, problem)
        state[POSITIONS] = resample(state[POSITIONS], grid)
    else:
        image_size = image_size or 256
        _check_periods(filename, periods)
    mean, std, before, divisor = (
        torch.tensor(values, dtype=torch.float64)[:, None, None]
        for values in (IMAGENET_MEAN, IMAGENET_STD, trained_mean, trained_std)
    )
    shift = weight * ((mean - before) / divisor)
    state[PATCHES] = (weight * (std / divisor)).float()
    state[PATCH_BIAS] = (bias + shift.sum(dim=(1, 2, 3))).float()
    return state, image_size


def _check_stored(filename: str, stored: Mapping[str, Tensor]) -> None:
    """Check what :func:`renamed` and the arithmetic on patches rely on."""
    for name, tensor in stored.items():
        shape, mask = tuple(tensor.shape), stored.get(f"{name}_mask", tensor)
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise unsafe(filename, f"{name}: {tensor.dtype}, not floating point of 16 or 32 bits")
        if QKV.match(name) and (not shape or shape[0] % 3 or mask.shape != shape):
            raise unsafe(filename, f"{name}: shape {shape}, not that of queries, keys and values")


def _check_periods(filename: str, periods: Tensor) -> None:
    """The server computes them; a file may hold them in bfloat16."""
    wanted = DINOV3_THETA ** (torch.arange(DIM_HEAD // 4) / (DIM_HEAD // 4))
    if periods.shape != wanted.shape or not torch.allclose(periods.float(), wanted, rtol=0.01):
        raise unsafe(filename, f"{DINOV3_PERIODS} are not those of base {DINOV3_THETA:g}")


def resample(positions: Tensor, grid: int) -> Tensor:
    """Positions (1, 1 + n * n, width) for ``grid`` x ``grid`` patches, by DINOv2's own rule.

    Its release adds 0.1 to the wanted side before it divides, which moves the sampled places;
    transformers does not, so its numbers differ.
    """
    side = math.isqrt(positions.shape[1] - 1)
    if side == grid:
        return positions
    square = positions[:, 1:].float().reshape(1, side, side, -1).permute(0, 3, 1, 2)
    scale = (grid + 0.1) / side
    resized = F.interpolate(square, scale_factor=(scale, scale), mode="bicubic")
    return torch.cat([positions[:, :1].float(), resized.flatten(2).transpose(1, 2)], dim=1)


def is_dinov3(frames: Mapping[str, Tensor]) -> bool:
    """Whether tensors that :func:`read_backbone` gave are DINOv3's."""
    return POSITIONS not in frames


def encoder_config(frames: dict[str, Tensor], image_size: int) -> JsonObject:
    """The part ``encoder`` of a ``config.json``."""
    width, _, patch, _ = frames[PATCHES].shape
    kind = "DINOv3ViT" if is_dinov3(frames) else "Dinov2"
    shape = {
        "_target_": f"transformers.{kind}Config",
        "hidden_size": width,
        "num_hidden_layers": count(r"encoder\.layer\.(\d+)\.", frames),
        "num_attention_heads": max(1, width // DIM_HEAD),
        "patch_size": patch,
    }
    if is_dinov3(frames):
        shape |= {
            "intermediate_size": frames["encoder.layer.0.mlp.fc1.weight"].shape[0],
            "num_register_tokens": frames[REGISTERS].shape[1],
            "rope_theta": DINOV3_THETA,
        }
    else:
        shape["image_size"] = image_size
    return {"_target_": f"transformers.{kind}Model", "config": shape}


def renamed(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under transformers' names, with DINOv3's masks of biases applied."""
    state: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith(("mask_token", "bias_mask")):
            continue
        new = name
        for old, known in BACKBONE_NAMES:
            new = re.sub(old, known, new)
        parts = {new: tensor}
        if found := QKV.match(name):
            mask = stored.get(f"{name}_mask")
            rows = (tensor if mask is None else tensor * mask).chunk(3)
            into = f"encoder.layer.{found[1]}.attention.attention.{{}}.{found[2]}".format
            parts = dict(zip(map(into, ("query", "key", "value")), rows, strict=True))
        if twice := state.keys() & parts.keys():
            raise UnsafeCheckpoint(f"{name}: {min(twice)} is there under two names")
        state |= parts
    return state
