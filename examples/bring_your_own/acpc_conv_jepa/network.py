"""A convolutional JEPA world model in the manner of PLDM: its latents are feature maps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

Layer = tuple[int, int, int]
"""Channels, odd kernel size and stride of a convolution."""


def stack(inputs: int, layers: Sequence[Layer]) -> nn.Sequential:
    """Convolutions with group norm and ReLU between them."""
    parts: list[nn.Module] = []
    for channels, kernel, stride in layers:
        if parts:
            parts += [nn.GroupNorm(inputs // 4, inputs), nn.ReLU()]
        parts.append(nn.Conv2d(inputs, channels, kernel, stride, padding=kernel // 2))
        inputs = channels
    return nn.Sequential(*parts)


class ConvJepa(nn.Module):
    """A frame becomes a feature map; a map and an action block become the next map.

    Args:
        encoder: Layers of the encoder; the last one's channels are those of the latent.
        predictor: Hidden layers of the predictor, which sees the latent and a constant plane for
            each action coordinate, and gives the latent's change.
        action_width: Coordinates of an action block.
    """

    def __init__(
        self, encoder: Sequence[Layer], predictor: Sequence[Layer], action_width: int
    ) -> None:
        super().__init__()
        self.channels = encoder[-1][0]
        self.encoder = stack(3, encoder)
        self.predictor = stack(self.channels + action_width, [*predictor, (self.channels, 3, 1)])

    def encode(self, frames: Tensor) -> Tensor:
        """Normalised frames (n, 3, side, side) to latents (n, dim), the maps laid out flat."""
        return self.encoder(frames).flatten(1)

    def predict(self, latents: Tensor, blocks: Tensor) -> Tensor:
        """Latents (b, dim) and the action blocks (b, width) that leave them to the next latents."""
        side = math.isqrt(latents.shape[1] // self.channels)
        maps = latents.unflatten(1, (self.channels, side, side))
        planes = blocks[:, :, None, None].expand(-1, -1, side, side)
        return (maps + self.predictor(torch.cat([maps, planes], dim=1))).flatten(1)
