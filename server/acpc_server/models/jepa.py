"""The parts of LeWM's and PLDM's network: causal AdaLN-zero predictor, embedder, projections.

Attribute names follow the public modules, so state dicts interchange.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.models.parts import EmbedderConfig, MlpConfig, NormConfig, PredictorConfig
from acpc_server.models.vit import normal_parameter, split_heads

MODULATION_EPS = 1e-6
ACTIVATIONS: dict[str, type[nn.Module]] = {"GELU": nn.GELU, "ReLU": nn.ReLU, "SiLU": nn.SiLU}


class FeedForward(nn.Module):
    """LayerNorm, Linear, exact GELU, Linear."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
            nn.Dropout(dropout),
        )

    def forward(self, tokens: Float[Tensor, "*tokens width"]) -> Float[Tensor, "*tokens width"]:
        """Each token on its own."""
        return self.net(tokens)


class CausalAttention(nn.Module):
    """LayerNorm, then causal attention of inner width ``heads * dim_head``, fused bias-free qkv."""

    def __init__(self, width: int, heads: int, dim_head: int, dropout: float) -> None:
        super().__init__()
        inner = heads * dim_head
        self.heads = heads
        self.dropout = dropout
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * inner, bias=False)
        # With one head as wide as the tokens the public module has no output map, hence no keys.
        self.to_out: nn.Module = (
            nn.Identity()
            if heads == 1 and dim_head == width
            else nn.Sequential(nn.Linear(inner, width), nn.Dropout(dropout))
        )

    def forward(self, tokens: Float[Tensor, "b t width"]) -> Float[Tensor, "b t width"]:
        """Each token sees itself and those before it."""
        return self.attend(tokens, tokens.shape[1], is_causal=True)

    def attend(
        self,
        tokens: Float[Tensor, "b t width"],
        queries: int,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Tensor, "b queries width"]:
        """Outputs of the last ``queries`` tokens, which see all, or where ``mask`` says so."""
        q, k, v = (split_heads(x, self.heads) for x in self.to_qkv(self.norm(tokens)).chunk(3, -1))
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            q[:, :, -queries:], k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal
        )  # (b, heads, queries, dim_head)
        return self.to_out(mixed.transpose(1, 2).flatten(2))


class ConditionalBlock(nn.Module):
    """Transformer block whose shifts, scales and gates come from the action embedding (AdaLN-zero).

    The modulation starts at zero, so an untrained block is the identity.
    """

    def __init__(self, width: int, heads: int, dim_head: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attn = CausalAttention(width, heads, dim_head, dropout)
        self.mlp = FeedForward(width, hidden, dropout)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=MODULATION_EPS)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=MODULATION_EPS)
        modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(modulation.weight)
        nn.init.zeros_(modulation.bias)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), modulation)

    def forward(
        self, tokens: Float[Tensor, "b t width"], condition: Float[Tensor, "b t width"]
    ) -> Float[Tensor, "b t width"]:
        """All output tokens."""
        shift, scale, gate, *rest = self.adaLN_modulation(condition).chunk(6, dim=-1)
        mixed = self.attn(torch.addcmul(shift, self.norm1(tokens), 1 + scale))
        tokens = torch.addcmul(tokens, gate, mixed)
        shift, scale, gate = rest
        changed = self.mlp(torch.addcmul(shift, self.norm2(tokens), 1 + scale))
        return torch.addcmul(tokens, gate, changed)


class Transformer(nn.Module):
    """Stack of conditional blocks, with linear maps only where widths differ."""

    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        hidden = config.hidden_dim
        self.norm = nn.LayerNorm(hidden)
        self.input_proj = _projection(config.input_dim, hidden)
        self.cond_proj = _projection(config.input_dim, hidden)
        self.output_proj = _projection(hidden, config.output_dim or config.input_dim)
        self.layers = nn.ModuleList(
            ConditionalBlock(hidden, config.heads, config.dim_head, config.mlp_dim, config.dropout)
            for _ in range(config.depth)
        )

    @property
    def blocks(self) -> list[ConditionalBlock]:
        """The layers, in order."""
        return list(self.layers)  # type: ignore[arg-type]

    def forward(
        self, tokens: Float[Tensor, "b t dim"], condition: Float[Tensor, "b t dim"]
    ) -> Float[Tensor, "b t out"]:
        """All output tokens."""
        hidden = self.input_proj(tokens)
        condition = self.cond_proj(condition)
        for layer in self.blocks:
            hidden = layer(hidden, condition)
        return self.output_proj(self.norm(hidden))


class Predictor(nn.Module):
    """Next-latent predictor over up to ``num_frames`` latents and their action embeddings."""

    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        self.num_frames = config.num_frames
        self.pos_embedding = normal_parameter(1, config.num_frames, config.input_dim)
        self.dropout = nn.Dropout(config.emb_dropout)
        self.transformer = Transformer(config)

    def forward(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t dim"]
    ) -> Float[Tensor, "b t out"]:
        """Token ``t`` predicts the latent after frame ``t`` from frames and actions up to ``t``."""
        tokens = self.dropout(latents + self.pos_embedding[:, : latents.shape[1]])
        return self.transformer(tokens, actions)


class Embedder(nn.Module):
    """Action block to action embedding: pointwise Conv1d, Linear, SiLU, Linear."""

    def __init__(self, config: EmbedderConfig) -> None:
        super().__init__()
        hidden = config.mlp_scale * config.emb_dim
        self.patch_embed = nn.Conv1d(config.input_dim, config.smoothed_dim, kernel_size=1)
        self.embed = nn.Sequential(
            nn.Linear(config.smoothed_dim, hidden), nn.SiLU(), nn.Linear(hidden, config.emb_dim)
        )

    def forward(self, blocks: Float[Tensor, "*b block"]) -> Float[Tensor, "*b emb"]:
        """Each block on its own; a kernel of width one is a matrix product, and computed as one."""
        smoothed = F.linear(blocks, self.patch_embed.weight.squeeze(-1), self.patch_embed.bias)
        return self.embed(smoothed)


class ProjectionMlp(nn.Module):
    """Linear, normalisation, activation, Linear: the public ``MLP`` head."""

    def __init__(self, config: MlpConfig) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(config.input_dim, config.hidden_dim),
            _normalisation(config.norm_fn, config.hidden_dim),
            ACTIVATIONS[config.act_fn.target.rsplit(".", 1)[-1]](),
            nn.Linear(config.hidden_dim, config.output_dim or config.input_dim),
        )

    def forward(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n out"]:
        """Each row on its own, in eval mode; BatchNorm uses its running statistics there."""
        return self.net(features)


def _projection(from_dim: int, to_dim: int) -> nn.Module:
    return nn.Identity() if from_dim == to_dim else nn.Linear(from_dim, to_dim)


def _normalisation(norm: NormConfig | None, width: int) -> nn.Module:
    if norm is None:
        return nn.Identity()
    if norm.target.endswith(".BatchNorm1d"):
        return nn.BatchNorm1d(width, eps=norm.eps, momentum=norm.momentum)
    return nn.LayerNorm(width, eps=norm.eps)
