"""The family as acpc-server sees it: config and weights in, a frozen world model out."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from acpc_server.models.plugin import (
    CheckpointLimits,
    FrozenNetwork,
    InvalidArgument,
    JsonObject,
    ModelCard,
    Part,
    StateReader,
    UnsafeCheckpoint,
    count_parameters,
    fill,
    parse_config,
)
from pydantic import Field
from torch import Tensor

from acpc_vjepa2_ac.network import Encoder, Inputs, Predictor, Trunk, VJepa2AC
from acpc_vjepa2_ac.pose import POSE_DIM

TARGET = "acpc_vjepa2_ac.VJepa2AC"
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TrunkConfig(Part):
    """Sizes of a stack of transformer blocks."""

    width: Annotated[int, Field(ge=1, le=16384)]
    depth: Annotated[int, Field(ge=1, le=256)]
    heads: Annotated[int, Field(ge=1, le=256)]
    hidden: Annotated[int, Field(ge=1, le=65536)]

    def trunk(self, key: str) -> Trunk:
        """The same; UnsafeCheckpoint where heads do not share the width in even parts."""
        if self.width % (2 * self.heads):
            raise UnsafeCheckpoint(
                f"config.json: {key}: {self.heads} heads do not share {self.width} coordinates in "
                "even parts"
            )
        return Trunk(self.width, self.depth, self.heads, self.hidden)


class VJepa2ACConfig(Part):
    """All that ``config.json`` may say; anything else in it is rejected.

    Attributes:
        history: Frames that the predictor is given at most.
        pose: Whether frames come with the pose of the arm.
        extrinsics: Whether the pose of the camera follows it.
    """

    target: Literal["acpc_vjepa2_ac.VJepa2AC"] = Field(alias="_target_")
    image_size: Annotated[int, Field(ge=1, le=1024)]
    patch_size: Annotated[int, Field(ge=1, le=128)]
    tubelet_size: Annotated[int, Field(ge=1, le=16)]
    encoder: TrunkConfig
    predictor: TrunkConfig
    action_dim: Annotated[int, Field(ge=1, le=1024)]
    history: Annotated[int, Field(ge=1, le=64)]
    pose: bool
    extrinsics: bool = False


class VJepa2ACOptions(Part):
    """What ``acpc.json`` may say: statistics that were applied to actions and states, to be undone.

    The model takes metres and radians. Where a job standardises a dataset's columns, these are the
    columns' means and standard deviations.
    """

    action_mean: list[Finite] = Field(default_factory=list)
    action_std: list[Positive] = Field(default_factory=list)
    state_mean: list[Finite] = Field(default_factory=list)
    state_std: list[Positive] = Field(default_factory=list)

    def affine(self, kind: Literal["action", "state"], width: int) -> Tensor:
        """Mean and standard deviation (2, width), float64; 0 and 1 where left out."""
        rows = []
        for name, empty in ((f"{kind}_mean", 0.0), (f"{kind}_std", 1.0)):
            given = getattr(self, name) or [empty] * width
            if len(given) != width:
                raise UnsafeCheckpoint(
                    f"acpc.json: {name}: {len(given)} numbers, but the model takes {width}"
                )
            rows.append(torch.tensor(given, dtype=torch.float64))
        return torch.stack(rows)


class FrozenVJepa2AC(FrozenNetwork[VJepa2AC]):
    """A V-JEPA 2-AC network as the server calls it."""

    @torch.no_grad()
    def encode(self, frames: Tensor) -> Tensor:
        """Latents (n, dim) of normalised frames (n, 3, side, side), without their states."""
        side = self.card.image_size
        if frames.shape[2:] != (side, side):
            found = " x ".join(str(extent) for extent in frames.shape[2:])
            raise InvalidArgument("frames", f"{found} pixels; this model takes square frames")
        return self._network.encode(frames)

    @property
    def proprio_slot(self) -> int:
        """Coordinates that a frame's state takes in its latent."""
        return self._network.state

    @torch.no_grad()
    def embed_proprio(self, proprio: Tensor) -> Tensor:
        """States as latents carry them."""
        return self._network.states(proprio)

    @torch.no_grad()
    def embed_actions(self, blocks: Tensor) -> Tensor:
        """Actions (b, t, width) in metres and radians, as the predictor and the pose take them."""
        return self._network.actions(blocks)

    @torch.no_grad()
    def predict_next(self, latents: Tensor, actions: Tensor) -> Tensor:
        """The latent (b, dim) after the last of (b, t, dim), by the action that leaves it."""
        return self._network.predict(latents, actions)


def build_network(config: VJepa2ACConfig) -> VJepa2AC:
    """The network of a config, with fresh weights on the current default device."""
    grid, rest = divmod(config.image_size, config.patch_size)
    if rest or not grid:
        raise UnsafeCheckpoint(
            f"config.json: image_size: {config.image_size} is no multiple of patch_size "
            f"{config.patch_size}"
        )
    if config.pose and config.action_dim != POSE_DIM:
        raise UnsafeCheckpoint(
            f"config.json: action_dim: {config.action_dim}, but a pose is moved by {POSE_DIM}"
        )
    if config.extrinsics and not config.pose:
        raise UnsafeCheckpoint("config.json: extrinsics: given with a pose only; set pose, too")
    encoder = Encoder(config.encoder.trunk("encoder"), config.patch_size, config.tubelet_size)
    inputs = Inputs(config.action_dim, config.pose, config.extrinsics)
    predictor = Predictor(config.predictor.trunk("predictor"), config.encoder.width, inputs)
    return VJepa2AC(encoder, predictor, grid)


class VJepa2ACFamily:
    """What the entry point names."""

    name = "vjepa2-ac"
    targets = frozenset({TARGET})

    def build(
        self,
        config: JsonObject,
        state: StateReader,
        *,
        device: torch.device,
        limits: CheckpointLimits,
    ) -> FrozenVJepa2AC:
        """Check the config, the size, then the weights; raises UnsafeCheckpoint."""
        parsed = parse_config(VJepa2ACConfig, config)
        options = state.parse_options(VJepa2ACOptions)
        with torch.device("meta"):
            network = build_network(parsed)
        network.standardised(
            options.affine("action", parsed.action_dim), options.affine("state", network.state)
        )
        parameter_count = count_parameters(network, limits)
        fill(network, state.tensors, state.filename)
        card = ModelCard(
            family=self.name,
            digest=state.digest,
            image_size=parsed.image_size,
            latent_dim=network.visual + network.state,
            history=parsed.history,
            action_block_dim=parsed.action_dim,
            parameter_count=parameter_count,
            proprio_dim=network.state,
            latent_tokens=network.grid**2,
        )
        return FrozenVJepa2AC(network, card, device)


family = VJepa2ACFamily()
