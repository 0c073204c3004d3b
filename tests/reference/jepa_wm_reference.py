"""jepa-wms' JEPA-WM in float64 NumPy, as its source describes it, on the tensors that it saves."""

import math

import numpy as np
import torch
from acpc.arrays import NDArray
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD
from dino_wm_reference import DinoWm
from jepa_reference import gelu, layer_norm, linear, silu, turned
from jepa_wms import tiny
from torch import Tensor

Array = NDArray[np.float64]
Place = tuple[int, int, int]


class JepaWm:
    """Encoder and predictor, token by token; frames normalised with ImageNet's statistics."""

    def __init__(self, sizes: tiny.Sizes) -> None:
        self.sizes = sizes
        self._frames = DinoWm(sizes)
        saved = tiny.checkpoint(sizes, "jepa_wm", prefix="")
        self._predictor, self._proprio = (
            {name: value.double().numpy() for name, value in saved.get(part, {}).items()}
            for part in ("predictor", "proprio_encoder")
        )

    def encode(self, pixels: Tensor) -> Tensor:
        """Pixels (n, 3, side, side) in [0, 1] to patch tokens (n, patches, width)."""
        mean, std = (
            torch.tensor(x, dtype=torch.float64)[:, None, None]
            for x in (IMAGENET_MEAN, IMAGENET_STD)
        )
        return self.encode_normalised((pixels.double() - mean) / std)

    def encode_normalised(self, frames: Tensor) -> Tensor:
        """As :meth:`encode`, of normalised frames."""
        return self._frames.encode_normalised(frames)

    def unroll(
        self, visual: Tensor, proprio: Tensor | None, actions: Tensor, window: int
    ) -> dict[str, Tensor]:
        """Tokens (h, patches, width) forward under blocks (h - 1 + H, inputs)."""
        seen = [list(frame) for frame in visual.numpy()]
        if proprio is not None:
            weight, bias = self._proprio["patch_embed.weight"], self._proprio["patch_embed.bias"]
            for frame, values in zip(seen, proprio.double().numpy(), strict=True):
                frame[:] = [np.concatenate([x, weight[:, :, 0] @ values + bias]) for x in frame]
        blocks = actions.double().numpy()
        for end in range(len(seen), len(blocks) + 1):
            start = max(0, end - window)
            seen.append(self._next(seen[start:end], blocks[start:end]))
        found = torch.from_numpy(np.array(seen))
        visual_width = self.sizes.width
        return {"visual": found[..., :visual_width], "proprio": found[..., visual_width:]}

    def _next(self, frames: list[list[Array]], blocks: Array) -> list[Array]:
        """The patches that follow the last frame: each frame's actions modulate its own tokens."""
        sizes, count = self.sizes, self.sizes.grid**2
        places: list[Place] = []
        tokens: list[Array] = []
        for t, frame in enumerate(frames):
            for patch, token in enumerate(frame):
                places.append((t, patch // sizes.grid, patch % sizes.grid))
                inner = self._map("predictor_embed", token[: sizes.width])
                tokens.append(np.concatenate([inner, token[sizes.width :]]))
        acts = [self._map("action_encoder", block) for block in blocks]
        for i in range(sizes.depth):
            block = f"predictor_blocks.{i}."
            # Shift, scale and gate of attention, then of the MLP.
            parts = [np.split(self._map(block + "adaLN_modulation.1", silu(a)), 6) for a in acts]
            each = [parts[t] for t, _, _ in places]
            normed = [self._norm(block + "norm1", x) for x in tokens]
            moved = [x * (1 + p[1]) + p[0] for x, p in zip(normed, each, strict=True)]
            mixed = self._attend(block + "attn.", moved, places)
            tokens = [x + m * p[2] for x, m, p in zip(tokens, mixed, each, strict=True)]
            for j, p in enumerate(each):
                x = self._norm(block + "norm2", tokens[j]) * (1 + p[4]) + p[3]
                hidden = gelu(self._map(block + "mlp.fc1", x))
                tokens[j] = tokens[j] + p[5] * self._map(block + "mlp.fc2", hidden)
        normed = [self._norm("predictor_norm", x) for x in tokens[-count:]]
        inner_width = sizes.inner
        return [
            np.concatenate([self._map("predictor_proj", x[:inner_width]), x[inner_width:]])
            for x in normed
        ]

    def _attend(self, name: str, tokens: list[Array], places: list[Place]) -> list[Array]:
        """Each token sees its own frame and earlier ones."""
        heads = self.sizes.heads
        thirds = [np.split(self._map(name + "qkv", x), 3) for x in tokens]
        out: list[list[Array]] = [[] for _ in tokens]
        for h in range(heads):
            q, k = (
                [turned(np.split(x[i], heads)[h], at) for x, at in zip(thirds, places, strict=True)]
                for i in (0, 1)
            )
            v = [np.split(x[2], heads)[h] for x in thirds]
            for i, at in enumerate(places):
                seen = [j for j, other in enumerate(places) if other[0] <= at[0]]
                weights = [math.exp(q[i] @ k[j] / math.sqrt(len(q[i]))) for j in seen]
                total = sum(w * v[j] for w, j in zip(weights, seen, strict=True))
                out[i].append(np.asarray(total / sum(weights)))
        return [self._map(name + "proj", np.concatenate(x)) for x in out]

    def _map(self, name: str, x: Array) -> Array:
        return linear(self._predictor, name, x)

    def _norm(self, name: str, x: Array) -> Array:
        return layer_norm(self._predictor, name, x, 1e-6)


class FlatJepaWm:
    """A ``ReferenceModel`` whose latents' squared distances are the planner's cost."""

    def __init__(self, sizes: tiny.Sizes, window: int = 2, alpha: float = 0.1) -> None:
        self._model, self._window, self._alpha = JepaWm(sizes), window, alpha
        self.image_size = sizes.grid * sizes.patch

    def encode(self, images: Array, proprio: Array | None = None) -> Array:
        """(n, 3, side, side), and (n, inputs) where the model takes it, to (n, dim)."""
        return self._flat(self._tokens(images, proprio, np.zeros((len(images) - 1, 0))))

    def rollout(self, latents: Array, blocks: Array) -> Array:
        """(h, dim) latents without proprioception and (h + H - 1, width) blocks to (H, dim)."""
        patches = self._model.sizes.grid**2
        visual = torch.from_numpy(latents * latents.shape[1] ** 0.5).unflatten(1, (patches, -1))
        given = torch.from_numpy(blocks)
        found = self._model.unroll(visual, None, given, self._window)
        return self._flat(found)[len(latents) :]

    def imagine(self, images: Array, proprio: Array | None, blocks: Array) -> Array:
        """As :meth:`rollout`, from frames and their proprioception."""
        return self._flat(self._tokens(images, proprio, blocks))[len(images) :]

    def _tokens(self, images: Array, proprio: Array | None, blocks: Array) -> dict[str, Tensor]:
        visual = self._model.encode_normalised(torch.from_numpy(images))
        slots = None if proprio is None else torch.from_numpy(proprio)
        return self._model.unroll(visual, slots, torch.from_numpy(blocks), self._window)

    def _flat(self, found: dict[str, Tensor]) -> Array:
        parts = [
            part.flatten(1) * (weight / part[0].numel()) ** 0.5
            for part, weight in ((found["visual"], 1.0), (found["proprio"], self._alpha))
            if part.numel()
        ]
        return torch.cat(parts, dim=1).numpy()
