"""The frame encoders: ViT, DINOv2 and DINOv3, of which the CLS token or the patches are used.

They compute what Hugging Face's ``ViTModel`` (without pooler, with
``interpolate_pos_encoding=True``), ``Dinov2Model`` and ``DINOv3ViTModel`` (without gated MLPs)
compute. State dicts have the key names of transformers 5.x (``embeddings.*``, ``layers.N.*``,
``layernorm.*``).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.models.parts import Dinov3Config, EncoderConfig

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

    def forward(
        self, tokens: Float[Tensor, "n t width"], queries: int, turn: Tensor | None = None
    ) -> Float[Tensor, "n queries width"]:
        """Mix all tokens for each of the first ``queries``, before ``o_proj``.

        ``turn`` (2, t, d) are cosines and sines by which queries and keys are rotated.
        """
        q = split_heads(self.q_proj(tokens[:, :queries]), self.heads)
        k = split_heads(self.k_proj(tokens), self.heads)
        v = split_heads(self.v_proj(tokens), self.heads)
        if turn is not None:
            q, k = _rotated(q, turn[:, :queries]), _rotated(k, turn)
        mixed = F.scaled_dot_product_attention(q, k, v)  # (n, heads, queries, d)
        return mixed.transpose(1, 2).flatten(2)


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
        self, tokens: Float[Tensor, "n t width"], queries: int, turn: Tensor | None = None
    ) -> Float[Tensor, "n queries width"]:
        """The first ``queries`` output tokens; the others are not computed."""
        heads = self.attention(self.layernorm_before(tokens), queries, turn)
        mixed = _added(tokens[:, :queries], self.attention.o_proj(heads), self.layer_scale1)
        return _added(mixed, self.mlp(self.layernorm_after(mixed)), self.layer_scale2)


class Backbone(nn.Module):
    """Transformer layers over patch tokens, which follow ``lead`` other tokens."""

    embeddings: nn.Module
    layers: nn.ModuleList
    layernorm: nn.LayerNorm

    def __init__(self, width: int, patch_size: int, lead: int = 1) -> None:
        super().__init__()
        self.width, self.patch_size, self.lead = width, patch_size, lead

    def rotation(self, frames: Float[Tensor, "n 3 h w"]) -> Tensor | None:
        """Cosines and sines (2, tokens, d) by which queries and keys are rotated, if they are."""
        return None

    def patches(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n patches width"]:
        """Patch tokens after the final norm, in row-major order."""
        turn = self.rotation(frames)
        tokens = self.embeddings(frames)
        for layer in self.layers:
            tokens = layer(tokens, tokens.shape[1], turn)
        return self.layernorm(tokens[:, self.lead :])


class ViT(Backbone):
    """Vision transformer of the public ``vit_hf`` backbone; with ``scaled`` layers, DINOv2's."""

    def __init__(self, config: EncoderConfig, *, scaled: bool = False) -> None:
        width, depth, heads, hidden = config.geometry
        super().__init__(width, config.patch_size)
        self.embeddings = Embeddings(
            width, config.image_size, config.patch_size, config.use_mask_token
        )
        self.layers = nn.ModuleList(
            Layer(width, heads, hidden, config.layer_norm_eps, scaled) for _ in range(depth)
        )
        self.layernorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.apply(_init_linear)

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


class Dinov3Embeddings(nn.Module):
    """Patch tokens behind a CLS token and registers, without positions."""

    def __init__(self, config: Dinov3Config) -> None:
        super().__init__()
        width = config.hidden_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.register_tokens = nn.Parameter(torch.zeros(1, config.num_register_tokens, width))
        self.patch_embeddings = PatchEmbeddings(width, config.patch_size)

    def forward(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n tokens width"]:
        """Tokens, CLS first."""
        before = torch.cat([self.cls_token, self.register_tokens], dim=1)
        patches = self.patch_embeddings(frames)
        return torch.cat([before.expand(len(frames), -1, -1), patches], dim=1)


class Dinov3(Backbone):
    """DINOv3's vision transformer: queries and keys of patches are rotated by row and column."""

    def __init__(self, config: Dinov3Config) -> None:
        width, eps = config.hidden_size, config.layer_norm_eps
        super().__init__(width, config.patch_size, 1 + config.num_register_tokens)
        heads, hidden = config.num_attention_heads, config.intermediate_size
        self._dim_head, self._theta = width // heads, config.rope_theta
        self.embeddings = Dinov3Embeddings(config)
        self.layers = nn.ModuleList(
            Layer(width, heads, hidden, eps, scaled=True) for _ in range(config.num_hidden_layers)
        )
        self.layernorm = nn.LayerNorm(width, eps=eps)

    def rotation(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "2 tokens dim_head"]:
        """Cosines and sines of the angles by which a head's two halves turn into each other.

        The centres of patches lie in [-1, 1] on both axes; half of a half's coordinates belong to
        rows, half to columns. The tokens before the patches are not rotated.
        """
        rows, columns = (side // self.patch_size for side in frames.shape[-2:])
        quarter = self._dim_head // 4
        longest = max(quarter, rows, columns)
        count = torch.arange(longest, dtype=torch.float64, device=frames.device)
        periods = self._theta ** (count[:quarter] / quarter)
        places = [(2 * count[:n] + 1) / n - 1 for n in (rows, columns)]
        centres = torch.cartesian_prod(*places)  # (rows * columns, 2)
        angles = (2 * math.pi * centres[:, :, None] / periods).flatten(1).repeat(1, 2)
        whole = torch.cat([angles.new_zeros(self.lead, angles.shape[1]), angles])
        return torch.stack([whole.cos(), whole.sin()])


def split_heads(tokens: Float[Tensor, "n t inner"], heads: int) -> Float[Tensor, "n heads t d"]:
    """Each token's coordinates, a share for every attention head."""
    return tokens.reshape(*tokens.shape[:2], heads, -1).transpose(1, 2)


def _rotated(x: Float[Tensor, "n heads t d"], turn: Tensor) -> Float[Tensor, "n heads t d"]:
    cosine, sine = turn.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


def _added(residual: Tensor, x: Tensor, scale: Tensor | None) -> Tensor:
    return residual + (x if scale is None else x * scale)


def _init_linear(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=INIT_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
