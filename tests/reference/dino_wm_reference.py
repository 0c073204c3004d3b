"""dino_wm's DINO-WM in float64, as its source describes it, and the tensors of a tiny DINOv2."""

from dataclasses import dataclass

import torch
from jepa_reference import State, attend, embedded, feed_forward, later, linear, norm
from torch import Tensor

DIM_HEAD = 64


@dataclass(frozen=True)
class Sizes:
    """Of one model; slots are (inputs, width)."""

    width: int = 128
    backbone_depth: int = 1
    patch: int = 4
    trained_grid: int = 5
    grid: int = 3
    frames: int = 2
    depth: int = 1
    heads: int = 2
    action: tuple[int, int] = (6, 10)
    proprio: tuple[int, int] = (4, 8)

    @property
    def slot(self) -> int:
        """Coordinates of proprioception beside a token's."""
        return self.proprio[1]


def backbone_state(sizes: Sizes) -> State:
    """Random tensors under the names of DINOv2's own releases."""
    wide = sizes.width
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, wide),
        "mask_token": (1, wide),
        "pos_embed": (1, 1 + sizes.trained_grid**2, wide),
        "patch_embed.proj.weight": (wide, 3, sizes.patch, sizes.patch),
        "patch_embed.proj.bias": (wide,),
        "norm.weight": (wide,),
        "norm.bias": (wide,),
    }
    maps = {"attn.qkv": (wide, 3), "attn.proj": (wide, 1), "mlp.fc1": (wide, 4)}
    for i in range(sizes.backbone_depth):
        for half in (1, 2):
            for name in (f"norm{half}.weight", f"norm{half}.bias", f"ls{half}.gamma"):
                shapes[f"blocks.{i}.{name}"] = (wide,)
        for name, (inputs, times) in {**maps, "mlp.fc2": (4 * wide, 1)}.items():
            shapes[f"blocks.{i}.{name}.weight"] = (times * wide, inputs)
            shapes[f"blocks.{i}.{name}.bias"] = (times * wide,)
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator) * (0.1 if len(shape) > 1 else 0.5)
        for name, shape in shapes.items()
    }


class DinoWm:
    """Encoder and predictor, computed tensor by tensor; frames normalised with 0.5.

    ``parts`` are the tensors of ``predictor``, ``action_encoder`` and ``proprio_encoder``.
    """

    def __init__(self, sizes: Sizes, parts: dict[str, State]) -> None:
        self.sizes, self.parts = sizes, parts
        self.backbone = {name: x.double() for name, x in backbone_state(sizes).items()}

    def encode(self, pixels: Tensor) -> Tensor:
        """Pixels (n, 3, side, side) in [0, 1] to patch tokens (n, patches, width)."""
        state, sizes = self.backbone, self.sizes
        names = ("patch_embed.proj.weight", "patch_embed.proj.bias", "cls_token", "pos_embed")
        x = embedded((pixels.double() - 0.5) / 0.5, *(state[name] for name in names), more=0.1)
        eps = 1e-6
        for i in range(sizes.backbone_depth):
            block = f"blocks.{i}."
            normed = norm(state, block + "norm1", x, eps)
            q, k, v = linear(state, block + "attn.qkv", normed).chunk(3, dim=-1)
            mixed = attend(q, k, v, sizes.width // DIM_HEAD)
            x = x + state[block + "ls1.gamma"] * linear(state, block + "attn.proj", mixed)
            normed = norm(state, block + "norm2", x, eps)
            hidden = feed_forward(state, block + "mlp.fc1", block + "mlp.fc2", normed)
            x = x + state[block + "ls2.gamma"] * hidden
        return norm(state, "norm", x, eps)[:, 1:]

    def slot(self, name: str, values: Tensor) -> Tensor:
        """A slot's embedding of rows (..., inputs)."""
        state = self.parts[f"{name}_encoder"]
        weight = state["patch_embed.weight"][:, :, 0]
        return values.double() @ weight.T + state["patch_embed.bias"]

    def unroll(self, visual: Tensor, proprio: Tensor, actions: Tensor, window: int) -> Tensor:
        """Visual tokens (h, patches, width) forward under blocks (h - 1 + H, inputs)."""
        patches, width = self.sizes.grid**2, self.sizes.width
        acts = self.slot("action", actions)[:, None].expand(-1, patches, -1)
        slots = self.slot("proprio", proprio)[:, None].expand(-1, patches, -1)
        seen = torch.cat([visual, slots], dim=-1)
        for end in range(len(seen), len(actions) + 1):
            start = max(0, end - window)
            tokens = torch.cat([seen[start:end], acts[start:end]], dim=-1)
            out = self.predict(tokens.flatten(0, 1)).unflatten(0, (-1, patches))[-1]
            seen = torch.cat([seen, out[None, :, : seen.shape[-1]]])
        return seen[..., :width]

    def predict(self, x: Tensor) -> Tensor:
        """What the predictor makes of tokens (frames * patches, dim), causal between frames."""
        state, sizes = self.parts["predictor"], self.sizes
        x = x + state["pos_embedding"][0, : len(x)]
        hidden = later(len(x), sizes.grid**2)
        for i in range(sizes.depth):
            layer = f"transformer.layers.{i}."
            normed = norm(state, layer + "0.norm", x, 1e-5)
            q, k, v = linear(state, layer + "0.to_qkv", normed).chunk(3, dim=-1)
            x = x + linear(state, layer + "0.to_out.0", attend(q, k, v, sizes.heads, hidden))
            normed = norm(state, layer + "1.net.0", x, 1e-5)
            x = x + feed_forward(state, layer + "1.net.1", layer + "1.net.4", normed)
        return norm(state, "transformer.norm", x, 1e-5)
