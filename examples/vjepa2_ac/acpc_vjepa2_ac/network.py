"""V-JEPA 2's encoder of frames and the action-conditioned predictor over its features.

Attribute names follow the published modules, so their tensors need no other names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_vjepa2_ac.pose import POSE_DIM, moved

NORM_EPSILON = 1e-6
THETA = 10_000.0
POSE_SCALE = 2.0**-20
"""Of poses in latents. A power of two keeps their bits; squared it is below float32's rounding of a
distance between features, so that distances and costs are those of the features."""
EXTRINSICS_DIM = 6


@dataclass(frozen=True)
class Trunk:
    """Sizes of a stack of transformer blocks."""

    width: int
    depth: int
    heads: int
    hidden: int


@dataclass(frozen=True)
class Inputs:
    """What the predictor is given beside features.

    Attributes:
        action: Coordinates of an action.
        pose: Whether a token of the arm's pose stands before each frame's patches.
        extrinsics: Whether a token of the camera's pose does, too.
    """

    action: int
    pose: bool
    extrinsics: bool

    @property
    def state(self) -> int:
        """Coordinates that come with a frame: the pose, then the camera's."""
        return POSE_DIM * self.pose + EXTRINSICS_DIM * self.extrinsics

    @property
    def tokens(self) -> int:
        """Tokens before each frame's patches."""
        return 1 + self.pose + self.extrinsics


def rotary(places: Tensor, head: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines (n, head) for tokens at frames, rows and columns (3, n).

    Each axis rotates a third of a head's coordinates, rounded down to an even number; what is left
    is not rotated. Coordinates 2i and 2i + 1 are rotated as a pair, but the angles are laid out
    twice one after another, so the two of a pair have different frequencies: no rotation, strictly,
    but it is what the published weights were trained with.
    """
    half = head // 3 // 2
    powers = torch.arange(half, device=places.device, dtype=dtype) / max(1, half)
    turns = places.to(dtype)[..., None] * THETA**-powers  # (3, n, half)
    flat = torch.cat([turns, turns], dim=-1).transpose(0, 1).flatten(1)  # (n, 6 * half)
    whole = F.pad(flat, (0, head - flat.shape[1]))
    return whole.cos(), whole.sin()


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Queries or keys (..., n, head) at their places."""
    cosines, sines = tables
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([-odd, even], dim=-1).flatten(-2)
    return x * cosines + turned * sines


class Attention(nn.Module):
    """Multi-head self-attention with rotated queries and keys."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """Tokens (b, n, width); ``mask`` (n, n) says which see which, None: all see all."""
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        q, k = rotate(q, tables).to(v.dtype), rotate(k, tables).to(v.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return out


class Mlp(nn.Module):
    """Two linear maps around the exact GELU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Each token on its own."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(trunk.width, eps=NORM_EPSILON)
        self.attn = Attention(trunk.width, trunk.heads)
        self.norm2 = nn.LayerNorm(trunk.width, eps=NORM_EPSILON)
        self.mlp = Mlp(trunk.width, trunk.hidden)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """Tokens (b, n, width)."""
        x = x + self.attn(self.norm1(x), tables, mask)
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


def blocks(trunk: Trunk) -> nn.ModuleList:
    """The blocks of a trunk."""
    return nn.ModuleList(Block(trunk) for _ in range(trunk.depth))


def run(layers: nn.ModuleList, x: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
    """Tokens (b, n, width) at places (3, n) through all blocks."""
    first = cast("Block", layers[0])
    head = x.shape[-1] // first.attn.heads
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    tables = rotary(places, head, wide)
    for layer in layers:
        x = layer(x, tables, mask)
    return x


class PatchEmbed(nn.Module):
    """Tubelets of a clip to tokens, for clips that show one frame throughout."""

    def __init__(self, width: int, patch: int, tubelet: int) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, width, (tubelet, patch, patch))

    def forward(self, frames: Tensor) -> Tensor:
        """Tokens (n, patches, width) in row-major order; the tubelet's weights add up."""
        size = self.proj.kernel_size[1]
        cut = frames.unfold(2, size, size).unfold(3, size, size)  # (n, 3, rows, columns, p, p)
        flat = cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        return F.linear(flat, self.proj.weight.sum(dim=2).flatten(1), self.proj.bias)


class Encoder(nn.Module):
    """V-JEPA 2's video transformer, given each frame as a clip of one tubelet."""

    def __init__(self, trunk: Trunk, patch: int, tubelet: int) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(trunk.width, patch, tubelet)
        self.blocks = blocks(trunk)
        self.norm = nn.LayerNorm(trunk.width, eps=NORM_EPSILON)

    def forward(self, frames: Tensor, places: Tensor) -> Tensor:
        """Tokens (n, patches, width) of frames (n, 3, side, side)."""
        out: Tensor = self.norm(run(self.blocks, self.patch_embed(frames), places))
        return out


class Predictor(nn.Module):
    """The action-conditioned predictor: each frame's tokens see those of it and earlier ones."""

    def __init__(self, trunk: Trunk, features: int, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.predictor_embed = nn.Linear(features, trunk.width)
        self.action_encoder = nn.Linear(inputs.action, trunk.width)
        if inputs.pose:
            self.state_encoder = nn.Linear(POSE_DIM, trunk.width)
        if inputs.extrinsics:
            self.extrinsics_encoder = nn.Linear(EXTRINSICS_DIM, trunk.width)
        self.predictor_blocks = blocks(trunk)
        self.predictor_norm = nn.LayerNorm(trunk.width, eps=NORM_EPSILON)
        self.predictor_proj = nn.Linear(trunk.width, features)

    def forward(self, features: Tensor, actions: Tensor, states: Tensor, places: Tensor) -> Tensor:
        """Features (b, patches, width) that follow the last of (b, t, patches, width).

        Actions (b, t, action) leave the frames, states (b, t, state) come with them; ``places`` are
        those of one frame's patches.
        """
        t, patches = features.shape[1:3]
        beside = [self.action_encoder(actions)]
        if self.inputs.pose:
            beside.append(self.state_encoder(states[..., :POSE_DIM]))
        if self.inputs.extrinsics:
            beside.append(self.extrinsics_encoder(states[..., -EXTRINSICS_DIM:]))
        x = torch.cat([torch.stack(beside, dim=2), self.predictor_embed(features)], dim=2)
        # Tokens beside the patches stand at the frame's place, in row and column 0.
        each = F.pad(places, (x.shape[2] - patches, 0))
        whole = each.repeat(1, t)
        whole[0] = torch.arange(t, device=x.device).repeat_interleave(x.shape[2])
        mask = whole[0][:, None] >= whole[0][None, :] if t > 1 else None
        x = run(self.predictor_blocks, x.flatten(1, 2), whole, mask)
        out: Tensor = self.predictor_proj(self.predictor_norm(x[:, -patches:]))
        return out


class VJepa2AC(nn.Module):
    """Encoder and predictor, with the arithmetic of latents.

    A latent holds a frame's features, layer-normalised patch by patch, one patch after another, and
    then the state that came with it times ``POSE_SCALE``. Features are scaled so that the squared
    Euclidean distance of two latents is the mean square over their coordinates.
    """

    def __init__(self, encoder: Encoder, predictor: Predictor, grid: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.predictor = predictor
        self.grid, self.state = grid, predictor.inputs.state
        self.visual = grid**2 * predictor.predictor_embed.in_features
        self._scale = self.visual**-0.5
        self.action_affine: Tensor
        self.state_affine: Tensor

    def standardised(self, actions: Tensor, states: Tensor) -> None:
        """How what is given was standardised: mean and standard deviation (2, width), float64."""
        self.register_buffer("action_affine", actions, persistent=False)
        self.register_buffer("state_affine", states, persistent=False)

    def encode(self, frames: Tensor) -> Tensor:
        """Latents (n, dim) of normalised frames, with zeros for their states."""
        return self._latents(self.encoder(frames, self._places(frames)))

    def actions(self, given: Tensor) -> Tensor:
        """Actions in metres and radians."""
        mean, std = self.action_affine
        return (given * std + mean).to(given.dtype)

    def states(self, given: Tensor) -> Tensor:
        """Last coordinates of latents, of states as they are given."""
        mean, std = self.state_affine
        return ((given * std + mean) * POSE_SCALE).to(given.dtype)

    def predict(self, latents: Tensor, actions: Tensor) -> Tensor:
        """The latent (b, dim) that follows the last of (b, t, dim)."""
        features = latents[..., : self.visual].unflatten(-1, (self.grid**2, -1)) / self._scale
        states = latents[..., self.visual :] / POSE_SCALE
        following = self.predictor(features, actions, states, self._places(latents))
        found = self._latents(following)
        if self.predictor.inputs.pose:
            pose = moved(states[:, -1, :POSE_DIM], actions[:, -1])
            states = torch.cat([pose[:, None], states[:, -1:, POSE_DIM:]], dim=-1)
        return torch.cat([found[:, : self.visual], states[:, -1] * POSE_SCALE], dim=-1)

    def _latents(self, features: Tensor) -> Tensor:
        normed = F.layer_norm(features, features.shape[-1:])
        return F.pad(normed.flatten(1) * self._scale, (0, self.state))

    def _places(self, like: Tensor) -> Tensor:
        """Frame, row and column (3, patches) of one frame's patches."""
        place = torch.arange(self.grid**2, device=like.device)
        return torch.stack([0 * place, place // self.grid, place % self.grid])
