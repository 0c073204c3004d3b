"""The script that a user writes with the public LeWM's modules: nothing fused, a step at a time.

Modules and their names are those of the public layout, so that a state dict loads. ``rollout`` does
what the public one does: each step embeds the actions so far, predicts from the last latents and
takes the last token. Nothing of the product takes part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def heads_of(x: Tensor, heads: int) -> Tensor:
    """Tokens (b, t, heads * d) as (b, heads, t, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(width, width) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(to(x), self.heads) for to in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class ViTLayer(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.layernorm_before, self.layernorm_after = (
            nn.LayerNorm(width, eps=1e-12) for _ in range(2)
        )
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, hidden), "fc2": nn.Linear(hidden, width)})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.layernorm_after(x))))


# What transformers' ViT of that size has where a configuration says nothing.
TINY = {
    "hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768
}  # fmt: skip


class ViT(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        config = TINY | config
        width, patch = config["hidden_size"], config["patch_size"]
        tokens = 1 + (config["image_size"] // patch) ** 2
        self.embeddings = nn.ParameterDict(
            {
                "cls_token": torch.zeros(1, 1, width),
                "position_embeddings": torch.zeros(1, tokens, width),
            }
        )
        convolution = nn.Conv2d(3, width, patch, stride=patch)
        self.embeddings.patch_embeddings = nn.ModuleDict({"projection": convolution})
        self.layers = nn.ModuleList(
            ViTLayer(width, config["num_attention_heads"], config["intermediate_size"])
            for _ in range(config["num_hidden_layers"])
        )
        self.layernorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, frames: Tensor) -> Tensor:
        at = self.embeddings
        patches = at.patch_embeddings["projection"](frames).flatten(2).transpose(1, 2)
        x = torch.cat([at["cls_token"].expand(len(frames), -1, -1), patches], 1)
        x = x + at["position_embeddings"]
        for layer in self.layers:
            x = layer(x)
        return self.layernorm(x)[:, 0]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dim_head: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * heads * dim_head, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * dim_head, width), nn.Dropout(0.0))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, self.heads) for part in self.to_qkv(self.norm(x)).chunk(3, -1))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.to_out(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.0),
            nn.Linear(hidden, width), nn.Dropout(0.0),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class ConditionalBlock(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width = config["hidden_dim"]
        self.attn = Attention(width, config["heads"], config["dim_head"])
        self.mlp = FeedForward(width, config["mlp_dim"])
        self.norm1, self.norm2 = (
            nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2)
        )
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale, gate, *mlp = self.adaLN_modulation(c).chunk(6, dim=-1)
        x = x + gate * self.attn(self.norm1(x) * (1 + scale) + shift)
        shift, scale, mlp_gate = mlp
        return x + mlp_gate * self.mlp(self.norm2(x) * (1 + scale) + shift)


class Transformer(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        near, width, out = (config[name] for name in ("input_dim", "hidden_dim", "output_dim"))
        self.norm = nn.LayerNorm(width)
        self.input_proj, self.cond_proj, self.output_proj = (
            nn.Linear(*sizes) if sizes[0] != sizes[1] else nn.Identity()
            for sizes in ((near, width), (near, width), (width, out))
        )
        self.layers = nn.ModuleList(ConditionalBlock(config) for _ in range(config["depth"]))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        x, c = self.input_proj(x), self.cond_proj(c)
        for block in self.layers:
            x = block(x, c)
        return self.output_proj(self.norm(x))


class Predictor(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, config["num_frames"], config["input_dim"]))
        self.transformer = Transformer(config)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        return self.transformer(x + self.pos_embedding[:, : x.shape[1]], c)


class Embedder(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.patch_embed = nn.Conv1d(width, width, 1)
        self.embed = nn.Sequential(nn.Linear(width, 4 * out), nn.SiLU(), nn.Linear(4 * out, out))

    def forward(self, actions: Tensor) -> Tensor:
        return self.embed(self.patch_embed(actions.transpose(1, 2)).transpose(1, 2))


class Mlp(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden = config["hidden_dim"]
        self.net = nn.Sequential(
            nn.Linear(config["input_dim"], hidden), nn.BatchNorm1d(hidden), nn.GELU(),
            nn.Linear(hidden, config["output_dim"]),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class OrdinaryModel(nn.Module):
    """The public world model; takes what ``plain.PlainModel`` takes."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.encoder, self.predictor = ViT(config["encoder"]), Predictor(config["predictor"])
        actions = config["action_encoder"]
        self.action_encoder = Embedder(actions["input_dim"], actions["emb_dim"])
        self.projector, self.pred_proj = Mlp(config["projector"]), Mlp(config["pred_proj"])
        self.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        self.eval()

    def encode(self, frames: Tensor) -> Tensor:
        """Latents (n, dim) of normalised frames (n, 3, h, w)."""
        return self.projector(self.encoder(frames))

    def predict(self, latents: Tensor, actions: Tensor) -> Tensor:
        """What follows each of the latents (b, t, dim)."""
        out = self.predictor(latents, actions)
        return self.pred_proj(out.flatten(0, 1)).unflatten(0, out.shape[:2])

    def roll(self, histories: Tensor, blocks: Tensor) -> Tensor:
        """Predictions (v, j, H, dim) of histories (v, h, dim), blocks (j, h - 1 + H, width)."""
        (v, h, _), (j, steps) = histories.shape, blocks.shape[:2]
        window = self.predictor.pos_embedding.shape[1]
        latents = histories[:, None].expand(-1, j, -1, -1).flatten(0, 1)
        blocks = blocks.expand(v, -1, -1, -1).flatten(0, 1)
        for end in range(h, steps + 1):
            actions = self.action_encoder(blocks[:, :end])
            found = self.predict(latents[:, -window:], actions[:, -window:])
            latents = torch.cat([latents, found[:, -1:]], 1)
        return latents[:, h:].unflatten(0, (v, j))
