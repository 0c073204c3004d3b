"""Attention whose queries and keys are rotated by frame, row and column.

JEPA-WM's predictor and V-JEPA 2's networks share it. Attribute names follow the public modules, so
state dicts interchange.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.models.products import Linear
from acpc_server.models.vit import split_heads

AXES = 3
BASE = 10_000.0


def token_positions(
    frames: int, rows: int, columns: int, lead: int = 0, device: torch.device | None = None
) -> Float[Tensor, "tokens 3"]:
    """Frame, row and column of every token, frame by frame and row by row.

    ``lead`` tokens before each frame's patches stand in row 0 and column 0: what is turned by its
    frame alone.
    """
    grids = [torch.arange(n, device=device, dtype=torch.float64) for n in (frames, rows, columns)]
    patches = torch.cartesian_prod(*grids).reshape(frames, rows * columns, AXES)
    before = torch.zeros(frames, lead, AXES, device=device, dtype=torch.float64)
    before[..., 0] = grids[0][:, None]
    return torch.cat([before, patches], dim=1).flatten(0, 1)


def rotation(
    positions: Float[Tensor, "tokens 3"], dim_head: int
) -> Float[Tensor, "2 tokens turned"]:
    """Cosines and sines of the angles by which a head's coordinates turn.

    Each axis has the same even share of the coordinates, one after another; up to five at the end
    are left as they are. As published, the two coordinates of a turned pair have different angles:
    a share's frequencies are listed once and then once more, not each twice. So this is no rotation
    in the strict sense, and trained weights depend on it.
    """
    pairs = dim_head // AXES // 2
    steps = torch.arange(pairs, device=positions.device, dtype=torch.float64)
    frequencies = (BASE ** (-steps / max(1, pairs))).repeat(2)
    angles = positions[:, :, None] * frequencies  # (tokens, 3, 2 * pairs)
    return torch.stack([angles.cos(), angles.sin()]).flatten(2)


class RotaryAttention(nn.Module):
    """Multi-head attention with fused qkv and biases, whose queries and keys are turned."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = Linear(width, 3 * width)
        self.proj = Linear(width, width)

    def forward(
        self,
        tokens: Float[Tensor, "b t width"],
        turn: Float[Tensor, "2 t turned"],
        queries: int,
        mask: Tensor | None = None,
    ) -> Float[Tensor, "b queries width"]:
        """Outputs of the last ``queries`` tokens, which see all, or where ``mask`` says so."""
        parts = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        asked = tokens[:, -queries:], tokens, tokens
        q, k, v = (
            split_heads(F.linear(x, weight, bias), self.heads)
            for x, weight, bias in zip(asked, *parts, strict=True)
        )
        q, k = _turned(q, turn[:, -queries:]), _turned(k, turn)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (b, heads, queries, d)
        out: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return out


def _turned(x: Float[Tensor, "b heads t d"], turn: Tensor) -> Float[Tensor, "b heads t d"]:
    cosine, sine = turn.to(x.dtype)
    inner, rest = x.tensor_split([turn.shape[-1]], dim=-1)
    crossed = torch.stack([-inner[..., 1::2], inner[..., ::2]], dim=-1).flatten(-2)
    return torch.cat([inner * cosine + crossed * sine, rest], dim=-1)
