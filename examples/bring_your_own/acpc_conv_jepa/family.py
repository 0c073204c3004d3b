"""The family as acpc-server sees it: config and weights in, a frozen world model out."""

from __future__ import annotations

import copy
from typing import Annotated, Literal

import torch
from acpc_server.models.plugin import (
    CheckpointLimits,
    InvalidArgument,
    JsonObject,
    ModelCard,
    Part,
    StateReader,
    count_parameters,
    fill,
    parse_config,
)
from pydantic import Field
from torch import Tensor

from acpc_conv_jepa.network import ConvJepa

Channels = Annotated[int, Field(ge=4, le=1024, multiple_of=4)]


class LayerConfig(Part):
    """One convolution."""

    channels: Channels
    kernel: Literal[1, 3, 5, 7]
    stride: Annotated[int, Field(ge=1, le=8)] = 1


class ConvJepaConfig(Part):
    """All that ``config.json`` may say; anything else in it is rejected."""

    target: Literal["acpc_conv_jepa.ConvJepa"] = Field(alias="_target_")
    image_size: Annotated[int, Field(ge=8, le=1024)]
    action_block_dim: Annotated[int, Field(ge=1, le=1024)]
    encoder: Annotated[list[LayerConfig], Field(min_length=1, max_length=32)]
    predictor: Annotated[list[Channels], Field(min_length=1, max_length=32)]


def build_network(config: ConvJepaConfig) -> ConvJepa:
    """The network of a config, with fresh weights on the current default device."""
    return ConvJepa(
        [(layer.channels, layer.kernel, layer.stride) for layer in config.encoder],
        [(channels, 3, 1) for channels in config.predictor],
        config.action_block_dim,
    )


class FrozenConvJepa:
    """A network as the server calls it: in eval mode, without gradients."""

    def __init__(self, network: ConvJepa, card: ModelCard, device: torch.device) -> None:
        self._network = network.to(device).eval().requires_grad_(False)
        self.card = card
        self.device = device

    def in_float64(self) -> FrozenConvJepa:
        """A copy in float64, with which scores say how far rounding reaches."""
        return FrozenConvJepa(copy.deepcopy(self._network).double(), self.card, self.device)

    @torch.no_grad()
    def encode(self, frames: Tensor) -> Tensor:
        """Normalised frames (n, 3, side, side) to latents (n, dim)."""
        side = self.card.image_size
        if frames.shape[2:] != (side, side):
            found = " x ".join(str(extent) for extent in frames.shape[2:])
            raise InvalidArgument("frames", f"{found} pixels; this model takes square frames")
        return self._network.encode(frames)

    @torch.no_grad()
    def embed_actions(self, blocks: Tensor) -> Tensor:
        """Blocks (b, t, width) as they are: the predictor takes raw coordinates."""
        return blocks

    @torch.no_grad()
    def predict_next(self, latents: Tensor, actions: Tensor) -> Tensor:
        """The latent (b, dim) after the last of (b, t, dim), by the action that leaves it."""
        return self._network.predict(latents[:, -1], actions[:, -1])


class ConvJepaFamily:
    """What the entry point names."""

    name = "conv-jepa"
    targets = frozenset({"acpc_conv_jepa.ConvJepa"})

    def build(
        self,
        config: JsonObject,
        state: StateReader,
        *,
        device: torch.device,
        limits: CheckpointLimits,
    ) -> FrozenConvJepa:
        """Check the config, the size, then the weights; raises UnsafeCheckpoint."""
        parsed = parse_config(ConvJepaConfig, config)
        with torch.device("meta"):
            network = build_network(parsed)
            frame = torch.empty(1, 3, parsed.image_size, parsed.image_size)
            latent_dim = network.encode(frame).shape[1]
        parameter_count = count_parameters(network, limits)
        fill(network, state.tensors, state.filename)
        card = ModelCard(
            family=self.name,
            digest=state.digest,
            image_size=parsed.image_size,
            latent_dim=latent_dim,
            history=1,
            action_block_dim=parsed.action_block_dim,
            parameter_count=parameter_count,
        )
        return FrozenConvJepa(network, card, device)


family = ConvJepaFamily()
