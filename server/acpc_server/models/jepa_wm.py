"""The network of JEPA-WM: PreJEPA's frame by frame latents, another predictor between them.

Its blocks attend with queries and keys turned by frame, row and column, each frame to itself and to
earlier ones, and each frame's action sets their shifts, scales and gates (AdaLN). V-JEPA 2's
networks share the attention. Attribute names follow jepa-wms, so state dicts interchange.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.models.parts import AdaLnConfig
from acpc_server.models.prejepa import FramePredictor, PreJepaModel, frame_mask
from acpc_server.models.vit import Mlp, split_heads

AXES = 3
BASE = 10_000.0
EPS = 1e-6
MLP_RATIO = 4


def token_positions(
    frames: int, rows: int, columns: int, lead: int = 0, device: torch.device | None = None
) -> Float[Tensor, "tokens 3"]:
    """Frame, row and column of every token, frame by frame and row by row.

    ``lead`` tokens before each frame's patches stand in row 0 and column 0, so that their frame
    alone turns them.
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
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

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
        return self.proj(mixed.transpose(1, 2).flatten(2))


def _turned(x: Float[Tensor, "b heads t d"], turn: Tensor) -> Float[Tensor, "b heads t d"]:
    cosine, sine = turn.to(x.dtype)
    inner, rest = x.tensor_split([turn.shape[-1]], dim=-1)
    crossed = torch.stack([-inner[..., 1::2], inner[..., ::2]], dim=-1).flatten(-2)
    return torch.cat([inner * cosine + crossed * sine, rest], dim=-1)


class AdaLnBlock(nn.Module):
    """Pre-norm block, modulated by the action that leaves each frame."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPS)
        self.attn = RotaryAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=EPS)
        self.mlp = Mlp(width, MLP_RATIO * width)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(
        self,
        tokens: Float[Tensor, "b t p width"],
        actions: Float[Tensor, "b t width"],
        turn: Float[Tensor, "2 tokens turned"],
        mask: Tensor | None,
    ) -> Float[Tensor, "b q p width"]:
        """All frames where there is a mask between them; else the last, which sees every frame."""
        p, frames = tokens.shape[2], 1 if mask is None else tokens.shape[1]
        modulation = self.adaLN_modulation(actions)[:, :, None]  # (b, t, 1, 6 width)
        shift, scale = modulation.chunk(6, dim=-1)[:2]
        normed = self.norm1(tokens) * (1 + scale) + shift
        mixed = self.attn(normed.flatten(1, 2), turn, frames * p, mask)
        gate, mlp_shift, mlp_scale, mlp_gate = modulation[:, -frames:].chunk(6, dim=-1)[2:]
        tokens = tokens[:, -frames:] + gate * mixed.reshape(len(mixed), frames, p, -1)
        return tokens + mlp_gate * self.mlp(self.norm2(tokens) * (1 + mlp_scale) + mlp_shift)


class AdaLnPredictor(FramePredictor):
    """Tokens and actions of a window of frames to the tokens of the frame after it."""

    def __init__(self, config: AdaLnConfig, patches: int) -> None:
        super().__init__(patches)
        self._config, width = config, config.width
        self.predictor_embed = nn.Linear(config.embed_dim, config.predictor_embed_dim)
        self.action_encoder = nn.Linear(config.action_dim, width)
        self.predictor_blocks = nn.ModuleList(
            AdaLnBlock(width, config.num_heads) for _ in range(config.depth)
        )
        self.predictor_norm = nn.LayerNorm(width, eps=EPS)
        self.predictor_proj = nn.Linear(config.predictor_embed_dim, config.embed_dim)

    def forward(
        self, tokens: Float[Tensor, "b t p state"], actions: Float[Tensor, "b t width"]
    ) -> Float[Tensor, "b p state"]:
        """Predict what follows the last frame; proprioception passes beside the visual maps."""
        config, t = self._config, tokens.shape[1]
        visual, slot = torch.split(tokens, [config.embed_dim, config.slot], dim=-1)
        x = torch.cat([self.predictor_embed(visual), slot], dim=-1)
        side = math.isqrt(self.patches)
        places = token_positions(t, side, side, device=x.device)
        turn = rotation(places, config.width // config.num_heads)
        mask = frame_mask(t, self.patches, x.device)
        for index, block in enumerate(self.predictor_blocks):
            x = block(x, actions, turn, None if index == config.depth - 1 else mask)
        following = self.predictor_norm(x[:, -1])
        visual, slot = torch.split(following, [config.predictor_embed_dim, config.slot], dim=-1)
        return torch.cat([self.predictor_proj(visual), slot], dim=-1)


class JepaWmModel(PreJepaModel):
    """Backbone, AdaLN predictor and embedder of proprioception; latents are PreJEPA's."""

    predictor: AdaLnPredictor

    def embed_actions(self, blocks: Float[Tensor, "*b width"]) -> Float[Tensor, "*b emb"]:
        """Embeddings of normalised action blocks."""
        return self.predictor.action_encoder(blocks)

    def step(
        self, tokens: Float[Tensor, "b t p state"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b p state"]:
        """Predict the tokens that follow the last of a window."""
        return self.predictor(tokens, actions)
