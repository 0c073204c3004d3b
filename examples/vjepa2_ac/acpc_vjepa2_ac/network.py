"""V-JEPA 2's encoder of frames and the action-conditioned predictor over its features.

Attribute names follow the published modules, so their tensors need no other names.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from acpc_server.models.plugin import Mlp, RotaryAttention, rotation, token_positions
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_vjepa2_ac.pose import POSE_DIM, moved

NORM_EPSILON = 1e-6
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


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(trunk.width, eps=NORM_EPSILON)
        self.attn = RotaryAttention(trunk.width, trunk.heads)
        self.norm2 = nn.LayerNorm(trunk.width, eps=NORM_EPSILON)
        self.mlp = Mlp(trunk.width, trunk.hidden)

    def forward(self, x: Tensor, turn: Tensor, queries: int, mask: Tensor | None) -> Tensor:
        """The last ``queries`` of tokens (b, n, width)."""
        mixed = x[:, -queries:] + self.attn(self.norm1(x), turn, queries, mask)
        out: Tensor = mixed + self.mlp(self.norm2(mixed))
        return out


def blocks(trunk: Trunk) -> nn.ModuleList:
    """The blocks of a trunk."""
    return nn.ModuleList(Block(trunk) for _ in range(trunk.depth))


def run(
    layers: nn.ModuleList, x: Tensor, turn: Tensor, wanted: int, mask: Tensor | None = None
) -> Tensor:
    """The last ``wanted`` of tokens (b, n, width) after all blocks."""
    for layer in layers:
        last = layer is layers[-1]
        asked = wanted if last else x.shape[1]
        x = layer(x, turn, asked, mask if mask is None else mask[-asked:])
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
        self._head = trunk.width // trunk.heads

    def forward(self, frames: Tensor, grid: int) -> Tensor:
        """Tokens (n, grid * grid, width) of frames (n, 3, side, side)."""
        turn = rotation(token_positions(1, grid, grid, device=frames.device), self._head)
        out: Tensor = self.norm(run(self.blocks, self.patch_embed(frames), turn, grid**2))
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
        self._head = trunk.width // trunk.heads

    def forward(self, features: Tensor, actions: Tensor, states: Tensor, grid: int) -> Tensor:
        """Features (b, patches, width) that follow the last of (b, t, patches, width).

        Actions (b, t, action) leave the frames, states (b, t, state) come with them.
        """
        t, patches = features.shape[1:3]
        beside = [self.action_encoder(actions)]
        if self.inputs.pose:
            beside.append(self.state_encoder(states[..., :POSE_DIM]))
        if self.inputs.extrinsics:
            beside.append(self.extrinsics_encoder(states[..., -EXTRINSICS_DIM:]))
        x = torch.cat([torch.stack(beside, dim=2), self.predictor_embed(features)], dim=2)
        places = token_positions(t, grid, grid, len(beside), device=x.device)
        mask = places[:, :1] >= places[:, 0] if t > 1 else None
        turn = rotation(places, self._head)
        x = run(self.predictor_blocks, x.flatten(1, 2), turn, patches, mask)
        out: Tensor = self.predictor_proj(self.predictor_norm(x))
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
        return self._latents(self.encoder(frames, self.grid))

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
        following = self.predictor(features, actions, states, self.grid)
        found = self._latents(following)
        if self.predictor.inputs.pose:
            pose = moved(states[:, -1, :POSE_DIM], actions[:, -1])
            states = torch.cat([pose[:, None], states[:, -1:, POSE_DIM:]], dim=-1)
        return torch.cat([found[:, : self.visual], states[:, -1] * POSE_SCALE], dim=-1)

    def _latents(self, features: Tensor) -> Tensor:
        normed = F.layer_norm(features, features.shape[-1:])
        return F.pad(normed.flatten(1) * self._scale, (0, self.state))
