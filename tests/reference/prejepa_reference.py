"""PreJEPA (DINO-WM) inference in float64, written from its description; no server code.

Stands in for ``ReferenceModel`` where metrics are computed: its latents are the frame's patch
tokens and then its proprioception's embedding, scaled so that a squared distance is the family's
planning cost with a proprio weight of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from acpc.arrays import NDArray
from jepa_reference import State, attend, embedded, feed_forward, later, linear, norm
from public_prejepa import Sizes
from torch import Tensor, nn

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
    state: State
    proprio: Tensor | None = None

    @classmethod
    def of(cls, sizes: Sizes, network: nn.Module) -> PreJepaReference:
        """The reference of the public library's network."""
        return cls(sizes, {name: x.double() for name, x in network.state_dict().items()})

    def beside(self, proprio: NDArray[np.float32]) -> PreJepaReference:
        """The same, for frames with this proprioception."""
        return replace(self, proprio=torch.from_numpy(proprio).double())

    @property
    def image_size(self) -> int:
        """Side of the input in pixels."""
        return self.sizes.side

    def encode(self, images: Array) -> Array:
        """(n, 3, h, w) to (n, dim)."""
        visual = self._patches(torch.from_numpy(np.ascontiguousarray(images))).flatten(1)
        visual = visual / math.sqrt(visual.shape[1])
        if self.proprio is None:
            return visual.numpy()
        slots = self._slot("proprio", self.proprio[: len(images)])
        return torch.cat([visual, slots / math.sqrt(slots.shape[1])], dim=1).numpy()

    def rollout(self, latents: Array, blocks: Array) -> Array:
        """(h, dim) latents and (h + H - 1, width) blocks to (H, dim); patches keep proprio."""
        seen = [self._tokens(torch.from_numpy(latent)) for latent in latents]
        actions = self._slot("action", torch.from_numpy(blocks).double())
        while len(seen) <= len(blocks):
            frames = range(max(0, len(seen) - self.sizes.history), len(seen))
            window = [seen[t] | {"action": self._everywhere(actions[t])} for t in frames]
            seen.append(self._following(window))
        return np.stack([self._latent(tokens).numpy() for tokens in seen[len(latents) :]])

    def _patches(self, images: Tensor) -> Tensor:
        """DINOv2's patch tokens, row by row, (n, patches, width)."""
        config, emb = self.sizes.backbone, "backbone.embeddings"
        names = ("patch_embeddings.projection.weight", "patch_embeddings.projection.bias")
        given = (self.state[f"{emb}.{x}"] for x in (*names, "cls_token", "position_embeddings"))
        x = embedded(images, *given)
        for index in range(config["num_hidden_layers"]):
            layer = f"backbone.encoder.layer.{index}"
            normed = norm(self.state, f"{layer}.norm1", x, 1e-6)
            q, k, v = (linear(self.state, f"{layer}.attention.{n}_proj", normed) for n in "qkv")
            mixed = attend(q, k, v, config["num_attention_heads"])
            mixed = linear(self.state, f"{layer}.attention.o_proj", mixed)
            x = x + self.state[f"{layer}.layer_scale1.lambda1"] * mixed
            normed = norm(self.state, f"{layer}.norm2", x, 1e-6)
            hidden = feed_forward(self.state, f"{layer}.mlp.fc1", f"{layer}.mlp.fc2", normed)
            x = x + self.state[f"{layer}.layer_scale2.lambda1"] * hidden
        return norm(self.state, "backbone.layernorm", x, 1e-6)[:, 1:]

    def _slot(self, name: str, rows: Tensor) -> Tensor:
        """A slot's embeddings of rows."""
        prefix = f"extra_encoders.{name}.patch_embed"
        return rows @ self.state[f"{prefix}.weight"][:, :, 0].T + self.state[f"{prefix}.bias"]

    def _everywhere(self, slot: Tensor) -> Tensor:
        return slot.expand(self.sizes.patches, -1)

    def _tokens(self, latent: Tensor) -> State:
        """Visual and proprio coordinates of every patch."""
        width = self.sizes.backbone["hidden_size"]
        count = self.sizes.patches * width
        visual, slot = latent[:count].view(-1, width) * math.sqrt(count), latent[count:]
        proprio = self._everywhere(slot * math.sqrt(len(slot)))
        return {"": visual, "proprio": proprio} if len(slot) else {"": visual}

    def _latent(self, tokens: State) -> Tensor:
        visual = tokens[""].flatten() / math.sqrt(tokens[""].numel())
        first = tokens["proprio"][0] if "proprio" in tokens else visual[:0]
        return torch.cat([visual, first / math.sqrt(max(1, len(first)))])

    def _following(self, window: list[State]) -> State:
        """The tokens after the last of some frames, each of which sees itself and earlier ones."""
        order, patches = ["", *self.sizes.slots], self.sizes.patches
        x = torch.cat([torch.cat([f[key] for key in order], dim=1) for f in window])
        x = x + self.state["predictor.pos_embedding"][0, : len(x)]
        hidden = later(len(x), patches)
        for index in range(self.sizes.predictor["depth"]):
            layer = f"predictor.transformer.layers.{index}"
            x = predictor_layer(self.state, layer, x, self.sizes.predictor["heads"], hidden)
        last = norm(self.state, "predictor.transformer.norm", x, 1e-5)[-patches:]
        widths = [self.sizes.backbone["hidden_size"], *(w for _, w in self.sizes.slots.values())]
        parts = dict(zip(order, last.split(widths, dim=1), strict=True))
        del parts["action"]
        return parts


def predictor_layer(state: State, layer: str, x: Tensor, heads: int, hidden: Tensor) -> Tensor:
    """A layer of DINO-WM's predictor over tokens (n, dim), which do not see ``hidden`` ones."""
    q, k, v = linear(state, f"{layer}.0.to_qkv", norm(state, f"{layer}.0.norm", x, 1e-5)).chunk(
        3, 1
    )
    x = x + linear(state, f"{layer}.0.to_out.0", attend(q, k, v, heads, hidden))
    normed = norm(state, f"{layer}.1.net.0", x, 1e-5)
    return x + feed_forward(state, f"{layer}.1.net.1", f"{layer}.1.net.4", normed)
