"""jepa-wms' DINO-WM in float64, as its source describes it, on the tensors that it saves."""

import math

import torch
from jepa_reference import cubic
from jepa_torch_reference import State, attend, linear, norm
from jepa_wms import tiny
from torch import Tensor
from torch.nn import functional as F

DIM_HEAD = 64


class DinoWm:
    """Encoder and predictor, computed tensor by tensor; frames normalised with 0.5."""

    def __init__(self, sizes: tiny.Sizes) -> None:
        self.sizes = sizes
        self.backbone = {name: x.double() for name, x in tiny.backbone_state(sizes).items()}
        saved = tiny.checkpoint(sizes, prefix="")
        self.parts: dict[str, State] = {
            key: {name: value.double() for name, value in part.items()}
            for key, part in saved.items()
            if isinstance(part, dict) and key != "opt"
        }

    def encode(self, pixels: Tensor) -> Tensor:
        """Pixels (n, 3, side, side) in [0, 1] to patch tokens (n, patches, width)."""
        return self.encode_normalised((pixels.double() - 0.5) / 0.5)

    def encode_normalised(self, frames: Tensor) -> Tensor:
        """As :meth:`encode`, of frames as the backbone is given them."""
        state, sizes = self.backbone, self.sizes
        size, grid = sizes.patch, sizes.grid
        rows = []
        for i in range(grid):
            for j in range(grid):
                cut = frames[:, :, i * size : (i + 1) * size, j * size : (j + 1) * size]
                product = torch.einsum("nchw,dchw->nd", cut, state["patch_embed.proj.weight"])
                rows.append(product + state["patch_embed.proj.bias"])
        x = torch.stack(rows, dim=1)
        before = [state[name] for name in ("cls_token", "storage_tokens") if name in state]
        x = torch.cat([*(part.expand(len(x), -1, -1) for part in before), x], dim=1)
        eps = 1e-5 if sizes.registers else 1e-6
        if not sizes.registers:
            x = x + self.positions()
        for i in range(sizes.backbone_depth):
            block = f"blocks.{i}."
            normed = norm(state, block + "norm1", x, eps)
            q, k, v = linear(state, block + "attn.qkv", normed).chunk(3, dim=-1)
            if sizes.registers:
                k = k - state[block + "attn.qkv.bias"].chunk(3)[1]
                q, k = self.rotated(q), self.rotated(k)
            mixed = attend(q, k, v, sizes.width // DIM_HEAD)
            x = x + state[block + "ls1.gamma"] * linear(state, block + "attn.proj", mixed)
            inner = F.gelu(linear(state, block + "mlp.fc1", norm(state, block + "norm2", x, eps)))
            x = x + state[block + "ls2.gamma"] * linear(state, block + "mlp.fc2", inner)
        return norm(state, "norm", x, eps)[:, 1 + sizes.registers :]

    def rotated(self, x: Tensor) -> Tensor:
        """DINOv3's queries or keys: coordinate i of a head's half turns into that of the other."""
        grid, quarter, out = self.sizes.grid, DIM_HEAD // 4, x.clone()
        for token in range(grid**2):
            at = 1 + self.sizes.registers + token
            for axis, place in enumerate(divmod(token, grid)):
                for i in range(quarter):
                    angle = 2 * math.pi * ((2 * place + 1) / grid - 1) / 100 ** (i / quarter)
                    for head in range(self.sizes.width // DIM_HEAD):
                        a = head * DIM_HEAD + axis * quarter + i
                        b = a + DIM_HEAD // 2
                        one, other = x[:, at, a], x[:, at, b]
                        out[:, at, a] = one * math.cos(angle) - other * math.sin(angle)
                        out[:, at, b] = other * math.cos(angle) + one * math.sin(angle)
        return out

    def positions(self) -> Tensor:
        """Bicubic at the places that a scale of (grid + 0.1) / trained_grid gives."""
        stored, n, grid = self.backbone["pos_embed"], self.sizes.trained_grid, self.sizes.grid
        if n == grid:
            return stored
        step = n / (grid + 0.1)
        weights = torch.zeros(grid, n, dtype=torch.float64)
        for i in range(grid):
            place = (i + 0.5) * step - 0.5
            for j in range(math.floor(place) - 1, math.floor(place) + 3):
                weights[i, min(max(j, 0), n - 1)] += cubic(place - j)
        square = stored[0, 1:].unflatten(0, (n, n))
        resized = torch.einsum("ia,jb,abd->ijd", weights, weights, square)
        return torch.cat([stored[:, :1], resized.flatten(0, 1)[None]], dim=1)

    def slot(self, name: str, values: Tensor) -> Tensor:
        """A slot's embedding of rows (..., inputs)."""
        state = self.parts[f"{name}_encoder"]
        weight = state["patch_embed.weight"][:, :, 0]
        return values.double() @ weight.T + state["patch_embed.bias"]

    def unroll(self, visual: Tensor, proprio: Tensor | None, actions: Tensor, window: int) -> State:
        """Tokens (h, patches, width) forward under blocks (h - 1 + H, inputs)."""
        patches, width = self.sizes.grid**2, self.sizes.width
        acts = self.slot("action", actions)[:, None].expand(-1, patches, -1)
        parts = [visual]
        if proprio is not None:
            parts.append(self.slot("proprio", proprio)[:, None].expand(-1, patches, -1))
        seen = torch.cat(parts, dim=-1)
        for end in range(len(seen), len(actions) + 1):
            start = max(0, end - window)
            tokens = torch.cat([seen[start:end], acts[start:end]], dim=-1)
            out = self.predict(tokens.flatten(0, 1)).unflatten(0, (-1, patches))[-1]
            seen = torch.cat([seen, out[None, :, : seen.shape[-1]]])
        return {"visual": seen[..., :width], "proprio": seen[..., width:]}

    def predict(self, x: Tensor) -> Tensor:
        """What the predictor makes of tokens (frames * patches, dim), causal between frames."""
        state, sizes = self.parts["predictor"], self.sizes
        x = x + state["pos_embedding"][0, : len(x)]
        frame = torch.arange(len(x)) // sizes.grid**2
        hidden = frame[None, :] > frame[:, None]
        for i in range(sizes.depth):
            layer = f"transformer.layers.{i}."
            normed = norm(state, layer + "0.norm", x, 1e-5)
            q, k, v = (normed @ state[layer + "0.to_qkv.weight"].T).chunk(3, dim=-1)
            mixed = attend(q, k, v, sizes.heads, hidden)
            x = x + linear(state, layer + "0.to_out.0", mixed)
            normed = norm(state, layer + "1.net.0", x, 1e-5)
            inner = F.gelu(linear(state, layer + "1.net.1", normed))
            x = x + linear(state, layer + "1.net.4", inner)
        return norm(state, "transformer.norm", x, 1e-5)
