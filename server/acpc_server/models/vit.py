"""The frame encoders: ViT and DINOv2, of which the CLS token or the patches are used.

They compute what Hugging Face's ``ViTModel`` (without pooler, with
``interpolate_pos_encoding=True``) and ``Dinov2Model`` (without gated MLPs) compute. State dicts
have the key names of transformers 5.x (``embeddings.*``, ``layers.N.*``, ``layernorm.*``).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.models.parts import EncoderConfig

RGB = 3
INIT_STD = 0.02


class PatchEmbeddings(nn.Module):
    """Non-overlapping square patches, each mapped linearly to one token."""

    def __init__(self, width: int, patch_size: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Conv2d(RGB, width, kernel_size=patch_size, stride=patch_size)

    def forward(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n patches width"]:
        """Tokens in row-major order; rows and columns that fill no whole patch are dropped.

        Stride equals kernel, so the convolution is one matrix product. Written as such it keeps
        float32 on accelerators whose convolutions default to TF32.
        """
        n, size = frames.shape[0], self.patch_size
        rows, columns = frames.shape[2] // size, frames.shape[3] // size
        whole = frames[:, :, : rows * size, : columns * size]
        patches = whole.reshape(n, RGB, rows, size, columns, size)
        flat = patches.permute(0, 2, 4, 1, 3, 5).reshape(n, rows * columns, -1)
        return F.linear(flat, self.projection.weight.flatten(1), self.projection.bias)


def normal_parameter(*shape: int) -> nn.Parameter:
    """Standard normals; of no value on the meta device.

    There ``torch.randn`` and ``normal_`` drag in torch's compiler: half a second, and memory.
    """
    values = torch.empty(shape)
    return nn.Parameter(values if values.is_meta else values.normal_())


class Embeddings(nn.Module):
    """Patch tokens behind a CLS token, with learned positions.

    ``mask_token`` is a parameter of masked-image training; inference never reads it, but files
    written with it hold it.
    """

    def __init__(self, width: int, image_size: int, patch_size: int, use_mask_token: bool) -> None:
        super().__init__()
        self.grid = image_size // patch_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width)) if use_mask_token else None
        self.patch_embeddings = PatchEmbeddings(width, patch_size)
        self.position_embeddings = nn.Parameter(torch.zeros(1, self.grid**2 + 1, width))
        nn.init.trunc_normal_(self.cls_token, std=INIT_STD)
        nn.init.trunc_normal_(self.position_embeddings, std=INIT_STD)

    def positions(self, rows: int, columns: int) -> Float[Tensor, "1 tokens width"]:
        """Position embeddings for a grid of patches, bicubic when it is not the trained one."""
        if rows == columns == self.grid:
            return self.position_embeddings
        trained = self.position_embeddings[:, 1:].reshape(1, self.grid, self.grid, -1)
        resized = F.interpolate(
            trained.permute(0, 3, 1, 2), size=(rows, columns), mode="bicubic", align_corners=False
        )  # (1, width, rows, columns)
        patches = resized.flatten(2).transpose(1, 2)
        return torch.cat((self.position_embeddings[:, :1], patches), dim=1)

    def forward(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n tokens width"]:
        """Tokens, CLS first."""
        size = self.patch_embeddings.patch_size
        positions = self.positions(frames.shape[2] // size, frames.shape[3] // size)
        patches = self.patch_embeddings(frames) + positions[:, 1:]
        cls = (self.cls_token + positions[:, :1]).expand(frames.shape[0], -1, -1)
        return torch.cat((cls, patches), dim=1)


class SelfAttention(nn.Module):
    """Full multi-head self-attention with biases everywhere."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.o_proj = nn.Linear(width, width)
        self.register_buffer("weight", None, persistent=False)  # of all three, once frozen
        self.register_buffer("bias", None, persistent=False)

    def freeze(self) -> None:
        """Join the maps to one, of which they become parts; they are not to change any more."""
        self.weight, self.bias = weight, bias = self._joined()
        for place, each in enumerate((self.q_proj, self.k_proj, self.v_proj)):
            each.weight = nn.Parameter(weight.chunk(3)[place], requires_grad=False)
            each.bias = nn.Parameter(bias.chunk(3)[place], requires_grad=False)

    def forward(
        self, tokens: Float[Tensor, "n t width"], queries: int
    ) -> Float[Tensor, "n queries width"]:
        """Mix all tokens for each of the first ``queries``, before ``o_proj``."""
        frozen = self.weight is not None and not self.training
        weight, bias = (self.weight, self.bias) if frozen else self._joined()
        width = weight.shape[1]
        if queries == tokens.shape[1]:
            mapped = F.linear(tokens, weight, bias).chunk(3, dim=-1)
        else:
            q = F.linear(tokens[:, :queries], weight[:width], bias[:width])
            mapped = q, *F.linear(tokens, weight[width:], bias[width:]).chunk(2, dim=-1)
        q, k, v = (split_heads(x, self.heads) for x in mapped)
        mixed = F.scaled_dot_product_attention(q, k, v)  # (n, heads, queries, d)
        return mixed.transpose(1, 2).flatten(2)

    def _joined(self) -> tuple[Tensor, Tensor]:
        maps = self.q_proj, self.k_proj, self.v_proj
        return torch.cat([x.weight for x in maps]), torch.cat([x.bias for x in maps])


class Mlp(nn.Module):
    """Two linear maps around the exact (erf) GELU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, tokens: Float[Tensor, "*tokens width"]) -> Float[Tensor, "*tokens width"]:
        """Each token on its own."""
        return self.fc2(F.gelu(self.fc1(tokens)))


class Layer(nn.Module):
    """Pre-norm transformer layer; DINOv2 scales the coordinates of what each half adds."""

    def __init__(self, width: int, heads: int, hidden: int, eps: float, scaled: bool) -> None:
        super().__init__()
        self.layer_scale1 = nn.Parameter(torch.ones(width)) if scaled else None
        self.layer_scale2 = nn.Parameter(torch.ones(width)) if scaled else None
        self.attention = SelfAttention(width, heads)
        self.layernorm_before = nn.LayerNorm(width, eps=eps)
        self.layernorm_after = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, hidden)

    def forward(
        self, tokens: Float[Tensor, "n t width"], queries: int
    ) -> Float[Tensor, "n queries width"]:
        """The first ``queries`` output tokens; the others are not computed."""
        heads = self.attention(self.layernorm_before(tokens), queries)
        mixed = _added(tokens[:, :queries], self.attention.o_proj(heads), self.layer_scale1)
        return _added(mixed, self.mlp(self.layernorm_after(mixed)), self.layer_scale2)


class ViT(nn.Module):
    """Vision transformer of the public ``vit_hf`` backbone; with ``scaled`` layers, DINOv2's."""

    def __init__(self, config: EncoderConfig, *, scaled: bool = False) -> None:
        super().__init__()
        width, depth, heads, hidden = config.geometry
        self.width, self.patch_size = width, config.patch_size
        self.lead = 1  # tokens before the patches: CLS
        self.embeddings = Embeddings(
            width, config.image_size, config.patch_size, config.use_mask_token
        )
        self.layers = nn.ModuleList(
            Layer(width, heads, hidden, config.layer_norm_eps, scaled) for _ in range(depth)
        )
        self.layernorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=INIT_STD)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def patches(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n patches width"]:
        """Patch tokens after the final norm, in row-major order."""
        tokens = self.embeddings(frames)
        for layer in self.layers:
            tokens = layer(tokens, tokens.shape[1])
        return self.layernorm(tokens[:, self.lead :])

    def forward(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n width"]:
        """CLS token after the final norm; any ``h`` and ``w`` of at least one patch.

        Only the CLS token leaves the last layer, so that layer computes its query, output
        projection and MLP for CLS alone.
        """
        tokens = self.embeddings(frames)
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            tokens = layer(tokens, 1 if index == last else tokens.shape[1])
        return self.layernorm(tokens[:, 0])


def split_heads(tokens: Float[Tensor, "n t inner"], heads: int) -> Float[Tensor, "n heads t d"]:
    """Each token's coordinates, a share for every attention head."""
    return tokens.reshape(*tokens.shape[:2], heads, -1).transpose(1, 2)


def _added(residual: Tensor, x: Tensor, scale: Tensor | None) -> Tensor:
    return residual + (x if scale is None else x * scale)
