"""PreJEPA (DINO-WM) inference in float64 NumPy, written from its description; no server code.

Stands in for ``ReferenceModel`` where metrics are computed: its latents are the frame's patch
tokens and then its proprioception's embedding, scaled so that a squared distance is the family's
planning cost with a proprio weight of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from acpc.arrays import NDArray
from jepa_reference import attend, gelu, layer_norm, linear, resize_matrix
from public_prejepa import Sizes
from torch import nn

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PreJepaReference:
    """One checkpoint.

    Attributes:
        sizes: Its sizes.
        state: Its tensors under the public library's names.
        proprio: Of the frames that are encoded next, (n, width), where it has a slot.
    """

    sizes: Sizes
    state: dict[str, Array]
    proprio: Array | None = None

    @classmethod
    def of(cls, sizes: Sizes, network: nn.Module) -> PreJepaReference:
        """The reference of the public library's network."""
        state = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
        return cls(sizes, state)

    def beside(self, proprio: NDArray[np.float32]) -> PreJepaReference:
        """The same, for frames with this proprioception."""
        return replace(self, proprio=proprio.astype(np.float64))

    @property
    def image_size(self) -> int:
        """Side of the input in pixels."""
        return self.sizes.side

    def encode(self, images: Array) -> Array:
        """(n, 3, h, w) to (n, dim)."""
        visual = np.stack([self._patches(image).ravel() for image in images])
        visual = visual / math.sqrt(visual.shape[1])
        if self.proprio is None:
            return visual
        slots = np.stack([self._slot("proprio", row) for row in self.proprio[: len(images)]])
        return np.concatenate([visual, slots / math.sqrt(slots.shape[1])], axis=1)

    def rollout(self, latents: Array, blocks: Array) -> Array:
        """(h, dim) latents and (h + H - 1, width) blocks to (H, dim); patches keep proprio."""
        seen = [self._tokens(latent) for latent in latents]
        while len(seen) <= len(blocks):
            frames = range(max(0, len(seen) - self.sizes.history), len(seen))
            seen.append(self._following([self._with_action(seen[t], blocks[t]) for t in frames]))
        return np.stack([self._latent(tokens) for tokens in seen[len(latents) :]])

    def _patches(self, image: Array) -> Array:
        """DINOv2's patch tokens of one frame, row by row, (patches, width)."""
        config, size = self.sizes.backbone, int(self.sizes.backbone["patch_size"])
        side, emb = int(math.sqrt(self.sizes.patches)), "backbone.embeddings"
        kernel = self.state[f"{emb}.patch_embeddings.projection.weight"]
        bias = self.state[f"{emb}.patch_embeddings.projection.bias"]
        tokens = [self.state[f"{emb}.cls_token"][0, 0]]
        for row in range(side):
            for column in range(side):
                part = image[:, row * size : (row + 1) * size, column * size : (column + 1) * size]
                tokens.append(np.tensordot(kernel, part, 3) + bias)
        positions = self.state[f"{emb}.position_embeddings"][0]
        grid = int(config["image_size"]) // size
        resize = resize_matrix(grid, side)
        table = np.einsum("ra,cb,abd->rcd", resize, resize, positions[1:].reshape(grid, grid, -1))
        x = np.stack(tokens) + np.concatenate([positions[:1], table.reshape(side * side, -1)])
        for index in range(config["num_hidden_layers"]):
            layer = f"backbone.encoder.layer.{index}"
            normed = layer_norm(self.state, f"{layer}.norm1", x, 1e-6)
            q, k, v = (linear(self.state, f"{layer}.attention.{n}_proj", normed) for n in "qkv")
            mixed = attend(q, k, v, config["num_attention_heads"], [len(x)] * len(x))
            mixed = linear(self.state, f"{layer}.attention.o_proj", mixed)
            x = x + self.state[f"{layer}.layer_scale1.lambda1"] * mixed
            normed = layer_norm(self.state, f"{layer}.norm2", x, 1e-6)
            hidden = gelu(linear(self.state, f"{layer}.mlp.fc1", normed))
            hidden = linear(self.state, f"{layer}.mlp.fc2", hidden)
            x = x + self.state[f"{layer}.layer_scale2.lambda1"] * hidden
        return layer_norm(self.state, "backbone.layernorm", x, 1e-6)[1:]

    def _slot(self, name: str, row: Array) -> Array:
        """A slot's embedding of one row."""
        prefix = f"extra_encoders.{name}.patch_embed"
        return self.state[f"{prefix}.weight"][:, :, 0] @ row + self.state[f"{prefix}.bias"]

    def _tokens(self, latent: Array) -> dict[str, Array]:
        """Visual and proprio coordinates of every patch."""
        width = self.sizes.backbone["hidden_size"]
        count = self.sizes.patches * width
        visual = latent[:count].reshape(-1, width) * math.sqrt(count)
        if len(latent) == count:
            return {"": visual}
        slot = latent[count:] * math.sqrt(len(latent) - count)
        return {"": visual, "proprio": np.stack([slot] * self.sizes.patches)}

    def _with_action(self, tokens: dict[str, Array], block: Array) -> dict[str, Array]:
        return {**tokens, "action": np.stack([self._slot("action", block)] * self.sizes.patches)}

    def _latent(self, tokens: dict[str, Array]) -> Array:
        visual = tokens[""].ravel() / math.sqrt(tokens[""].size)
        if "proprio" not in tokens:
            return visual
        first = tokens["proprio"][0]
        return np.concatenate([visual, first / math.sqrt(len(first))])

    def _following(self, window: list[dict[str, Array]]) -> dict[str, Array]:
        """The tokens after the last of some frames, each of which sees itself and earlier ones."""
        order, patches = ["", *self.sizes.slots], self.sizes.patches
        x = np.concatenate([np.concatenate([f[key] for key in order], axis=1) for f in window])
        x = x + self.state["predictor.pos_embedding"][0, : len(x)]
        seen = [(token // patches + 1) * patches for token in range(len(x))]
        for index in range(self.sizes.predictor["depth"]):
            layer = f"predictor.transformer.layers.{index}"
            normed = layer_norm(self.state, f"{layer}.0.norm", x, 1e-5)
            q, k, v = np.split(linear(self.state, f"{layer}.0.to_qkv", normed), 3, axis=1)
            mixed = attend(q, k, v, self.sizes.predictor["heads"], seen)
            x = x + linear(self.state, f"{layer}.0.to_out.0", mixed)
            hidden = layer_norm(self.state, f"{layer}.1.net.0", x, 1e-5)
            hidden = gelu(linear(self.state, f"{layer}.1.net.1", hidden))
            x = x + linear(self.state, f"{layer}.1.net.4", hidden)
        last = layer_norm(self.state, "predictor.transformer.norm", x, 1e-5)[-patches:]
        widths = [self.sizes.backbone["hidden_size"], *(w for _, w in self.sizes.slots.values())]
        parts = dict(zip(order, np.split(last, np.cumsum(widths)[:-1], axis=1), strict=True))
        del parts["action"]
        return parts
