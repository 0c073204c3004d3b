"""Reads the frozen backbones of dino_wm's models, which their files do not hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from acpc_server.errors import UnsafeCheckpoint
from acpc_server.models import JsonObject, unsafe
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD

DIM_HEAD = 64  # of every published size
# Names of DINOv2's releases, and those of transformers' Dinov2Model.
BACKBONE_NAMES = (
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^norm\.", "layernorm."),
    (r"^blocks\.(\d+)\.attn\.proj\.", r"encoder.layer.\1.attention.output.dense."),
    (r"^blocks\.(\d+)\.ls([12])\.gamma$", r"encoder.layer.\1.layer_scale\2.lambda1"),
    (r"^blocks\.", "encoder.layer."),
)
QKV = re.compile(r"^blocks\.(\d+)\.attn\.qkv\.(weight|bias)$")
POSITIONS = "embeddings.position_embeddings"
PATCHES = "embeddings.patch_embeddings.projection.weight"
PATCH_BIAS = "embeddings.patch_embeddings.projection.bias"
AXES = {PATCHES: 4, PATCH_BIAS: 1, POSITIONS: 3}
HALF = 0.5  # what dino_wm takes off its pixels, and divides them by


def prepare_backbone(filename: str, stored: Mapping[str, Tensor], side: int) -> dict[str, Tensor]:
    """Make a backbone's tensors those for frames of ``side`` x ``side`` patches.

    The server normalises with ImageNet's statistics; the patch projection is made to undo that.
    Positions are resampled as DINOv2's own code does.
    """
    for name, tensor in stored.items():
        shape = tuple(tensor.shape)
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise unsafe(filename, f"{name}: {tensor.dtype}, not floating point of 16 or 32 bits")
        if QKV.match(name) and (not shape or shape[0] % 3):
            raise unsafe(filename, f"{name}: shape {shape}, not that of queries, keys and values")
    state = renamed(stored)
    for name, ndim in AXES.items():
        if name not in state or state[name].ndim != ndim or not state[name].numel():
            wanted = "a backbone's weights, as DINOv2 publishes them, are wanted"
            raise unsafe(filename, f"no {name} of {ndim} axes; {wanted}")
    weight, bias = state[PATCHES].double(), state[PATCH_BIAS].double()
    if weight.shape[1] != len(IMAGENET_MEAN) or bias.shape != weight.shape[:1]:
        problem = f"patches of shape {tuple(weight.shape)}, bias {tuple(bias.shape)}; RGB is wanted"
        raise unsafe(filename, problem)
    trained = state[POSITIONS].shape[1] - 1
    if trained < 1 or math.isqrt(trained) ** 2 != trained:
        raise unsafe(filename, f"{trained} positions, not a square number of them")
    state[POSITIONS] = resample(state[POSITIONS], side)
    mean, std = (
        torch.tensor(values, dtype=torch.float64)[:, None, None]
        for values in (IMAGENET_MEAN, IMAGENET_STD)
    )
    shift = weight * ((mean - HALF) / HALF)
    state[PATCHES] = (weight * (std / HALF)).float()
    state[PATCH_BIAS] = (bias + shift.sum(dim=(1, 2, 3))).float()
    return state


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


def dinov2(width: int, layers: int, patch: int, side: int) -> JsonObject:
    """The part ``encoder`` of a ``config.json``, for frames of ``side`` x ``side`` patches."""
    shape = {
        "_target_": "transformers.Dinov2Config",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": max(1, width // DIM_HEAD),
        "patch_size": patch,
        "image_size": side * patch,
    }
    return {"_target_": "transformers.Dinov2Model", "config": shape}


def renamed(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under transformers' names."""
    state: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith("mask_token"):
            continue
        new = name
        for old, known in BACKBONE_NAMES:
            new = re.sub(old, known, new)
        parts = {new: tensor}
        if found := QKV.match(name):
            into = f"encoder.layer.{found[1]}.attention.attention.{{}}.{found[2]}".format
            parts = dict(zip(map(into, ("query", "key", "value")), tensor.chunk(3), strict=True))
        if twice := state.keys() & parts.keys():
            raise UnsafeCheckpoint(f"{name}: {min(twice)} is there under two names")
        state |= parts
    return state
