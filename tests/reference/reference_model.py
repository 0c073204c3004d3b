"""A checkpoint's float64 forward behind two functions, whichever reference computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jepa_reference
import jepa_torch_reference
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
        loops: Plain NumPy loops; torch operations when false, for large networks.
    """

    config: dict[str, Any]
    state: dict[str, torch.Tensor]
    loops: bool = True

    @classmethod
    def of(cls, config: dict[str, Any], seed: int, *, loops: bool = True) -> ReferenceModel:
        """The model that ``write_checkpoint(folder, config, seed=seed)`` writes."""
        state = random_state_dict(config, seed)
        return cls(config, {name: tensor.double() for name, tensor in state.items()}, loops)

    @property
    def image_size(self) -> int:
        """Side of the input in pixels."""
        return int(self.config["encoder"]["image_size"])

    def encode(self, images: Array) -> Array:
        """(n, 3, h, w) to (n, dim)."""
        if self.loops:
            return jepa_reference.encode(self._arrays(), self.config, images)
        frames = torch.from_numpy(np.ascontiguousarray(images))
        return jepa_torch_reference.encode(self.state, self.config, frames).numpy()

    def rollout(self, latents: Array, blocks: Array) -> Array:
        """(h, dim) latents and (h + H - 1, width) blocks to (H, dim)."""
        if self.loops:
            return jepa_reference.rollout(self._arrays(), self.config, latents, blocks)
        return jepa_torch_reference.rollout(
            self.state, self.config, torch.from_numpy(latents), torch.from_numpy(blocks)
        ).numpy()

    def _arrays(self) -> dict[str, Array]:
        return {name: tensor.numpy() for name, tensor in self.state.items()}
