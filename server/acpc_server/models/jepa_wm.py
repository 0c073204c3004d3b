"""The network of JEPA-WM: PreJEPA's frame by frame latents, another predictor between them.

Its blocks attend with queries and keys turned by frame, row and column, each frame to itself and to
earlier ones, and each frame's action sets their shifts, scales and gates (AdaLN). Attribute names
follow jepa-wms, so state dicts interchange.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from acpc_server.models.dinov3 import Dinov3
from acpc_server.models.prejepa import (
    PROPRIO,
    FramePredictor,
    PreJepaModel,
    SlotEmbedder,
    frame_mask,
)
from acpc_server.models.products import Linear
from acpc_server.models.rotary import RotaryAttention, rotation, token_positions
from acpc_server.models.vit import Mlp, ViT
from acpc_server.scheduling import pause

EPS = 1e-6
MLP_RATIO = 4


@dataclass(frozen=True)
class AdaLnShape:
    """Sizes of the predictor.

    Attributes:
        patches: Of one frame, which is square.
        visual: Coordinates of a patch's token as the backbone gives it.
        inner: Coordinates to which the predictor maps them.
        slot: Coordinates of proprioception beside these, in every patch.
        action: Width of an action block.
        depth: Blocks.
        heads: Of each block.
    """

    patches: int
    visual: int
    inner: int
    slot: int
    action: int
    depth: int
    heads: int

    @property
    def width(self) -> int:
        """Coordinates of a token between the blocks."""
        return self.inner + self.slot


class AdaLnBlock(nn.Module):
    """Pre-norm block, modulated by the action that leaves each frame."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPS)
        self.attn = RotaryAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=EPS)
        self.mlp = Mlp(width, MLP_RATIO * width)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), Linear(width, 6 * width))

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
        out: Tensor = tokens + mlp_gate * self.mlp(self.norm2(tokens) * (1 + mlp_scale) + mlp_shift)
        return out


class AdaLnPredictor(FramePredictor):
    """Tokens and actions of a window of frames to the tokens of the frame after it."""

    def __init__(self, shape: AdaLnShape) -> None:
        super().__init__(shape.patches)
        self._shape = shape
        self.predictor_embed = Linear(shape.visual, shape.inner)
        self.action_encoder = Linear(shape.action, shape.width)
        self.predictor_blocks = nn.ModuleList(
            AdaLnBlock(shape.width, shape.heads) for _ in range(shape.depth)
        )
        self.predictor_norm = nn.LayerNorm(shape.width, eps=EPS)
        self.predictor_proj = Linear(shape.inner, shape.visual)

    def forward(
        self, tokens: Float[Tensor, "b t p state"], actions: Float[Tensor, "b t width"]
    ) -> Float[Tensor, "b p state"]:
        """What follows the last frame; proprioception passes beside the two visual maps."""
        shape, t = self._shape, tokens.shape[1]
        visual, slot = torch.split(tokens, [shape.visual, shape.slot], dim=-1)
        x = torch.cat([self.predictor_embed(visual), slot], dim=-1)
        side = math.isqrt(shape.patches)
        places = token_positions(t, side, side, device=x.device)
        turn = rotation(places, shape.width // shape.heads)
        mask = frame_mask(t, shape.patches, x.device)
        for index, block in enumerate(self.predictor_blocks):
            pause()
            x = block(x, actions, turn, None if index == shape.depth - 1 else mask)
        following = self.predictor_norm(x[:, -1])
        visual, slot = torch.split(following, [shape.inner, shape.slot], dim=-1)
        return torch.cat([self.predictor_proj(visual), slot], dim=-1)


class JepaWmModel(PreJepaModel):
    """Backbone, AdaLN predictor and embedder of proprioception; latents are PreJEPA's."""

    predictor: AdaLnPredictor

    def __init__(
        self,
        backbone: ViT | Dinov3,
        predictor: AdaLnPredictor,
        proprio: SlotEmbedder | None,
        history: int,
        proprio_weight: float,
        proprio_patches: int,
    ) -> None:
        slots = {PROPRIO: proprio} if proprio is not None else {}
        super().__init__(backbone, predictor, slots, history, proprio_weight, proprio_patches)

    def embed_actions(self, blocks: Float[Tensor, "*b width"]) -> Float[Tensor, "*b emb"]:
        """Embeddings of normalised action blocks."""
        out: Tensor = self.predictor.action_encoder(blocks)
        return out

    def step(
        self, tokens: Float[Tensor, "b t p state"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b p state"]:
        """The tokens that follow the last of a window."""
        out: Tensor = self.predictor(tokens, actions)
        return out
