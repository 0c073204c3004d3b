"""DINOv3's vision transformer, of which the patches are used.

Registers stand behind the CLS token, and no positions are learned: queries and keys of patches are
rotated by row and column. What it computes is transformers' ``DINOv3ViTModel`` without gated MLPs;
its layers have the names of ``vit.ViT``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from acpc_server.models.vit import Layer, PatchEmbeddings
from acpc_server.scheduling import pause


@dataclass(frozen=True)
class Dinov3Shape:
    """Sizes; ``theta`` is the longest period of a rotation over the shortest, in the limit."""

    width: int
    depth: int
    heads: int
    hidden: int
    patch_size: int
    registers: int
    theta: float
    eps: float


class Dinov3Embeddings(nn.Module):
    """Patch tokens behind a CLS token and registers."""

    def __init__(self, shape: Dinov3Shape) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.register_tokens = nn.Parameter(torch.zeros(1, shape.registers, shape.width))
        self.patch_embeddings = PatchEmbeddings(shape.width, shape.patch_size)

    def forward(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n tokens width"]:
        """Tokens, CLS first."""
        before = torch.cat([self.cls_token, self.register_tokens], dim=1)
        patches = self.patch_embeddings(frames)
        return torch.cat([before.expand(len(frames), -1, -1), patches], dim=1)


class Dinov3(nn.Module):
    """The transformer."""

    def __init__(self, shape: Dinov3Shape) -> None:
        super().__init__()
        self.width, self.patch_size = shape.width, shape.patch_size
        self._shape = shape
        self.embeddings = Dinov3Embeddings(shape)
        self.layers = nn.ModuleList(
            Layer(shape.width, shape.heads, shape.hidden, shape.eps, scaled=True)
            for _ in range(shape.depth)
        )
        self.layernorm = nn.LayerNorm(shape.width, eps=shape.eps)

    def patches(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n patches width"]:
        """Patch tokens after the final norm, in row-major order."""
        shape = self._shape
        rows, columns = (side // shape.patch_size for side in frames.shape[-2:])
        before = 1 + shape.registers
        turn = axial_rotation(rows, columns, before, shape, frames.device)
        tokens = self.embeddings(frames)
        for layer in self.layers:
            pause()
            tokens = layer(tokens, tokens.shape[1], turn)
        out: Tensor = self.layernorm(tokens[:, before:])
        return out


def axial_rotation(
    rows: int, columns: int, before: int, shape: Dinov3Shape, device: torch.device
) -> Float[Tensor, "2 tokens dim_head"]:
    """Cosines and sines of the angles by which a head's two halves turn into each other.

    The centres of patches lie in [-1, 1] on both axes; half of a half's coordinates belong to
    rows, half to columns. The ``before`` first tokens are not rotated.
    """
    quarter = shape.width // shape.heads // 4
    count = torch.arange(max(quarter, rows, columns), dtype=torch.float64, device=device)
    periods = shape.theta ** (count[:quarter] / quarter)
    places = [(2 * count[:n] + 1) / n - 1 for n in (rows, columns)]
    centres = torch.cartesian_prod(*places)  # (rows * columns, 2)
    angles = (2 * math.pi * centres[:, :, None] / periods).flatten(1).repeat(1, 2)
    whole = torch.cat([angles.new_zeros(before, angles.shape[1]), angles])
    return torch.stack([whole.cos(), whole.sin()])
