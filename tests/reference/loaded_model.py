"""A checkpoint's own network in float64, in place of ``ReferenceModel``.

For families whose arithmetic other tests hold against public classes, or promise by promise: what
is computed around the network is then left to be tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from acpc.arrays import NDArray
from acpc_server.models import load_checkpoint, rollout, with_proprio

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LoadedModel:
    """One checkpoint; ``proprio`` is that of the frames that are encoded next, (n, width)."""

    model: Any
    proprio: torch.Tensor | None = None

    @classmethod
    def of(cls, folder: Path) -> LoadedModel:
        """The model in a checkpoint's folder."""
        loaded: Any = load_checkpoint(folder.parent, folder.name, device=torch.device("cpu"))
        return cls(loaded.in_float64())

    def beside(self, proprio: NDArray[np.float32]) -> LoadedModel:
        """The same, for frames with this proprioception."""
        return replace(self, proprio=torch.from_numpy(proprio).double())

    @property
    def image_size(self) -> int:
        """Side of the input in pixels."""
        return int(self.model.card.image_size)

    def encode(self, images: Array) -> Array:
        """(n, 3, h, w) to (n, dim)."""
        latents = self.model.encode(torch.from_numpy(np.ascontiguousarray(images)))
        if self.proprio is not None:
            slots = self.model.embed_proprio(self.proprio[: len(images)])
            latents = with_proprio(latents, slots)
        return latents.numpy()

    def rollout(self, latents: Array, blocks: Array) -> Array:
        """(h, dim) latents and (h + H - 1, width) blocks to (H, dim)."""
        given = torch.from_numpy(latents), torch.from_numpy(blocks).double()
        return rollout(self.model, *(x[None] for x in given))[0].numpy()
