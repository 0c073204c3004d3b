"""A checkpoint's float64 forward behind two functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jepa_reference
import numpy as np
import torch
from acpc.arrays import NDArray
from public_checkpoint import random_state_dict

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceModel:
    """Encoder and rollout in float64.

    Attributes:
        config: The checkpoint's ``config.json``.
        state: Its tensors, float64.
    """

    config: dict[str, Any]
    state: dict[str, torch.Tensor]

    @classmethod
    def of(cls, config: dict[str, Any], seed: int) -> ReferenceModel:
        """The model that ``write_checkpoint(folder, config, seed=seed)`` writes."""
        state = random_state_dict(config, seed)
        return cls(config, {name: tensor.double() for name, tensor in state.items()})

    @property
    def image_size(self) -> int:
        """Side of the input in pixels."""
        return int(self.config["encoder"]["image_size"])

    def encode(self, images: Array) -> Array:
        """(n, 3, h, w) to (n, dim)."""
        frames = torch.from_numpy(np.ascontiguousarray(images))
        return jepa_reference.encode(self.state, self.config, frames).numpy()

    def rollout(self, latents: Array, blocks: Array) -> Array:
        """(h, dim) latents and (h + H - 1, width) blocks to (H, dim)."""
        given = torch.from_numpy(latents), torch.from_numpy(blocks)
        return jepa_reference.rollout(self.state, self.config, *given).numpy()
