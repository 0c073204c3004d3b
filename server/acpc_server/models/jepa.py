"""The parts of LeWM's and PLDM's network: causal AdaLN-zero predictor, embedder, projections.

Names follow the public modules, so state dicts interchange; dropout, which they have, is never
used. What the predictor computes is written in :mod:`acpc_server.models.jepa_model`.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.models.parts import EmbedderConfig, MlpConfig, NormConfig, PredictorConfig
from acpc_server.models.vit import normal_parameter, split_heads

MODULATION_EPS = 1e-6
ACTIVATIONS: dict[str, type[nn.Module]] = {"GELU": nn.GELU, "ReLU": nn.ReLU, "SiLU": nn.SiLU}


class FeedForward(nn.Module):
    """LayerNorm, Linear, exact GELU, Linear."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, hidden),
            nn.GELU(),
            nn.Dropout(0.0),
            nn.Linear(hidden, width),
            nn.Dropout(0.0),
        )

    def forward(self, tokens: Float[Tensor, "*tokens width"]) -> Float[Tensor, "*tokens width"]:
        """Each token on its own."""
        return self.net(tokens)


class Attention(nn.Module):
    """LayerNorm, then attention of inner width ``heads * dim_head``, fused bias-free qkv."""

    def __init__(self, width: int, heads: int, dim_head: int) -> None:
        super().__init__()
        inner = heads * dim_head
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * inner, bias=False)
        # With one head as wide as the tokens the public module has no output map, hence no keys.
        self.to_out: nn.Module = (
            nn.Identity()
            if heads == 1 and dim_head == width
            else nn.Sequential(nn.Linear(inner, width), nn.Dropout(0.0))
        )

    def forward(
        self, tokens: Float[Tensor, "b t width"], queries: int, mask: Tensor | None = None
    ) -> Float[Tensor, "b queries width"]:
        """Outputs of the last ``queries`` tokens, which see all, or where ``mask`` says so."""
        q, k, v = (split_heads(x, self.heads) for x in self.to_qkv(self.norm(tokens)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q[:, :, -queries:], k, v, attn_mask=mask)
        return self.to_out(mixed.transpose(1, 2).flatten(2))  # of (b, heads, queries, dim_head)


class ConditionalBlock(nn.Module):
    """Transformer block whose shifts, scales and gates come from the action embedding (AdaLN-zero).

    The modulation starts at zero, so an untrained block is the identity.
    """

    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        width = config.hidden_dim
        self.attn = Attention(width, config.heads, config.dim_head)
        self.mlp = FeedForward(width, config.mlp_dim)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=MODULATION_EPS)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=MODULATION_EPS)
        modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(modulation.weight)
        nn.init.zeros_(modulation.bias)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), modulation)


class Transformer(nn.Module):
    """Stack of conditional blocks, with linear maps only where widths differ."""

    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        hidden = config.hidden_dim
        self.norm = nn.LayerNorm(hidden)
        self.input_proj = _projection(config.input_dim, hidden)
        self.cond_proj = _projection(config.input_dim, hidden)
        self.output_proj = _projection(hidden, config.output_dim or config.input_dim)
        self.layers = nn.ModuleList(ConditionalBlock(config) for _ in range(config.depth))


class Predictor(nn.Module):
    """Next-latent predictor over up to ``num_frames`` latents and their action embeddings."""

    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        self.num_frames = config.num_frames
        self.pos_embedding = normal_parameter(1, config.num_frames, config.input_dim)
        self.dropout = nn.Dropout(0.0)
        self.transformer = Transformer(config)


class SlotEmbedder(nn.Module):
    """Linear map of what one frame has beside its pixels: the public ``Embedder`` of PreJEPA."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.patch_embed = nn.Conv1d(inputs, width, kernel_size=1)

    def forward(self, rows: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows width"]:
        """Each row on its own; a kernel of width one is a matrix product, and computed as one."""
        return F.linear(rows, self.patch_embed.weight.squeeze(-1), self.patch_embed.bias)


class Embedder(SlotEmbedder):
    """Action block to action embedding: pointwise Conv1d, Linear, SiLU, Linear."""

    def __init__(self, config: EmbedderConfig) -> None:
        super().__init__(config.input_dim, config.smoothed_dim)
        hidden = config.mlp_scale * config.emb_dim
        self.embed = nn.Sequential(
            nn.Linear(config.smoothed_dim, hidden), nn.SiLU(), nn.Linear(hidden, config.emb_dim)
        )

    def forward(self, blocks: Float[Tensor, "*b block"]) -> Float[Tensor, "*b emb"]:
        """Each block on its own."""
        return self.embed(super().forward(blocks))


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
