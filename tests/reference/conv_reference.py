"""The convolutional JEPA of examples/bring_your_own in float64 NumPy, from its documentation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from acpc.arrays import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ConvReference:
    """Encoder and rollout of one checkpoint folder; as ``reference_model.ReferenceModel``.

    Attributes:
        config: Its ``config.json``.
        state: Its tensors, float64.
    """

    config: dict[str, Any]
    state: dict[str, Array]

    @classmethod
    def of(cls, folder: Path) -> ConvReference:
        state = safetensors.numpy.load_file(folder / "weights.safetensors")
        config = json.loads((folder / "config.json").read_text())
        return cls(config, {name: value.astype(np.float64) for name, value in state.items()})

    @property
    def image_size(self) -> int:
        return int(self.config["image_size"])

    def encode(self, images: Array) -> Array:
        """(n, 3, side, side) to (n, dim)."""
        strides = [layer.get("stride", 1) for layer in self.config["encoder"]]
        return np.stack([self._stack("encoder", image, strides).ravel() for image in images])

    def rollout(self, latents: Array, blocks: Array) -> Array:
        """(h, dim) latents and (h + H - 1, width) blocks to (H, dim), from the last latent."""
        channels = self.config["encoder"][-1]["channels"]
        strides = [1] * (len(self.config["predictor"]) + 1)
        side = round((latents.shape[1] / channels) ** 0.5)
        state, out = latents[-1].reshape(channels, side, side), []
        for block in blocks[len(latents) - 1 :]:
            planes = np.stack([np.full((side, side), value) for value in block])
            change = self._stack("predictor", np.concatenate([state, planes]), strides)
            state = state + change
            out.append(state.ravel())
        return np.stack(out)

    def _stack(self, name: str, image: Array, strides: list[int]) -> Array:
        for index, stride in enumerate(strides):
            if index:
                image = self._normed(f"{name}.{3 * index - 2}", image)
                image = np.maximum(image, 0)
            image = self._convolved(f"{name}.{3 * index}", image, stride)
        return image

    def _convolved(self, name: str, image: Array, stride: int) -> Array:
        """Every output pixel from its zero-padded neighbourhood."""
        weight, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        kernel = weight.shape[-1]
        padded = np.pad(image, ((0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2))
        side = (image.shape[1] - 1) // stride + 1
        out = np.empty((len(weight), side, side))
        for y in range(side):
            for x in range(side):
                top, left = y * stride, x * stride
                patch = padded[:, top : top + kernel, left : left + kernel]
                out[:, y, x] = (weight * patch).sum((1, 2, 3)) + bias
        return out

    def _normed(self, name: str, image: Array) -> Array:
        """Four channels a group."""
        out = np.empty_like(image)
        for first in range(0, len(image), 4):
            group = image[first : first + 4]
            out[first : first + 4] = (group - group.mean()) / np.sqrt(group.var() + 1e-5)
        weight, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        return out * weight[:, None, None] + bias[:, None, None]
