"""The network of PreJEPA (DINO-WM): a frozen backbone's patch tokens, predicted over frames.

Every patch token of a frame carries, beside its visual coordinates, slots with the embeddings of
the frame's proprioception and of the action that leaves it. The predictor attends over all patches
of several frames, each frame to itself and to earlier ones. Attribute names follow the public
modules, so state dicts interchange.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.errors import InvalidArgument
from acpc_server.models.jepa import Attention, FeedForward, SlotEmbedder
from acpc_server.models.parts import ACTION, PROPRIO, CausalPredictorConfig, PreJepaOptions
from acpc_server.models.vit import ViT, normal_parameter

# Tokens of one pass through the predictor; each takes some tens of kilobytes at the published size.
PASS_TOKENS = {"cpu": 2**14, "accelerator": 2**18}


class PatchTransformer(nn.Module):
    """The layers of a patch predictor, under their public names."""

    def __init__(self, config: CausalPredictorConfig) -> None:
        super().__init__()
        width = config.dim
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList()
        for _ in range(config.depth):
            attention = Attention(width, config.heads, config.dim_head)
            self.layers.append(nn.ModuleList([attention, FeedForward(width, config.mlp_dim)]))


class PatchPredictor(nn.Module):
    """Transformer over the patches of up to ``frames`` frames, causal between frames."""

    def __init__(self, config: CausalPredictorConfig) -> None:
        super().__init__()
        self.patches = config.num_patches
        tokens = config.num_frames * config.num_patches
        self.pos_embedding = normal_parameter(1, tokens, config.dim)
        self.transformer = PatchTransformer(config)

    def forward(self, tokens: Float[Tensor, "b t p width"]) -> Float[Tensor, "b p width"]:
        """Predict what follows the last frame, whose tokens alone are queries in the last layer."""
        t, p = tokens.shape[1:3]
        x = tokens.flatten(1, 2)  # (b, t * p, width)
        x = x + self.pos_embedding[:, : t * p]
        mask = frame_mask(t, p, x.device) if t > 1 else None
        layers = cast("list[tuple[Attention, FeedForward]]", [*self.transformer.layers])
        for index, (attention, mlp) in enumerate(layers):
            last = index == len(layers) - 1
            mixed = attention(x, p if last else t * p, None if last else mask)
            x = x[:, -mixed.shape[1] :] + mixed
            x = x + mlp(x)
        return self.transformer.norm(x[:, -p:])


def frame_mask(frames: int, patches: int, device: torch.device) -> Tensor:
    """Which tokens see which, bool (frames * patches, frames * patches)."""
    frame = torch.arange(frames * patches, device=device) // patches
    return frame[:, None] >= frame[None, :]


class PreJepaModel(nn.Module):
    """Backbone, predictor and slot embedders, with the arithmetic of one step.

    A latent of ``dim = patches * visual width + proprio slot width`` holds a frame's visual tokens
    one after another, then the embedding of its proprioception once. It is scaled so that the
    squared Euclidean distance of two latents is the family's planning cost: the mean square over
    visual coordinates plus ``proprio_weight`` times that over the proprio embedding.
    """

    def __init__(
        self,
        backbone: ViT,
        predictor: PatchPredictor,
        extra_encoders: Mapping[str, SlotEmbedder],
        history: int,
        options: PreJepaOptions,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.predictor = predictor
        self.extra_encoders = nn.ModuleDict(extra_encoders)
        self.history = history
        self._slots = {key: x.patch_embed.out_channels for key, x in extra_encoders.items()}
        self.patches, self.visual = predictor.patches, predictor.patches * backbone.width
        self.proprio = self._slots.get(PROPRIO, 0)
        self._visual_scale = self.visual**-0.5
        self._proprio_scale = (options.proprio_weight / max(1, self.proprio)) ** 0.5

    def check_frames(self, height: int, width: int) -> None:
        """Raise InvalidArgument for frames of another number of patches than the predictor's."""
        size, side = self.backbone.patch_size, math.isqrt(self.patches)
        if height // size != side or width // size != side:
            raise InvalidArgument(
                "frames",
                f"height {height} and width {width} make {height // size} x {width // size} "
                f"patches of {size} pixels, but the predictor takes {side} x {side}; give square "
                "frames",
            )

    def encode(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n dim"]:
        """Latents of normalised frames; where there is a proprio slot, with zeros in it."""
        visual = self.backbone.patches(frames).flatten(1) * self._visual_scale
        return F.pad(visual, (0, self.proprio))

    def embed_proprio(self, proprio: Float[Tensor, "n width"]) -> Float[Tensor, "n slot"]:
        """Last coordinates of latents, of normalised proprioception."""
        if not self.proprio:
            return proprio[..., :0]
        return self.extra_encoders[PROPRIO](proprio) * self._proprio_scale

    def embed_actions(self, blocks: Float[Tensor, "*b width"]) -> Float[Tensor, "*b emb"]:
        """Embeddings of normalised action blocks."""
        return self.extra_encoders[ACTION](blocks)

    def tokens(self, latents: Float[Tensor, "*b dim"]) -> Float[Tensor, "*b p state"]:
        """The predictor's input without the action: visual tokens, with the proprio in each."""
        visual = latents[..., : self.visual] / self._visual_scale
        parts = [visual.unflatten(-1, (self.patches, -1))]
        if self.proprio:
            each = latents[..., None, self.visual :] / self._proprio_scale
            parts.append(each.expand(*each.shape[:-2], self.patches, -1))
        return torch.cat(parts, dim=-1)

    def latents(self, tokens: Float[Tensor, "*b p state"]) -> Float[Tensor, "*b dim"]:
        """The latents of predicted tokens; proprio is the first patch's."""
        visual = self.visual // self.patches
        slots = tokens[..., 0, visual:] * self._proprio_scale
        flat = tokens[..., :visual].flatten(-2) * self._visual_scale
        return torch.cat([flat, slots], dim=-1)

    def step(
        self, tokens: Float[Tensor, "b t p state"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b p state"]:
        """Predict the tokens that follow the last of a window; each patch has its own proprio."""
        visual = self.visual // self.patches
        parts = {PROPRIO: tokens[..., visual:]}
        parts[ACTION] = actions[:, :, None].expand(-1, -1, self.patches, -1)
        whole = torch.cat([tokens[..., :visual], *(parts[key] for key in self._slots)], dim=-1)
        out = self.predictor(whole)
        widths = [visual, *self._slots.values()]
        found = dict(zip(["", *self._slots], torch.split(out, widths, dim=-1), strict=True))
        del found[ACTION]
        return torch.cat([*found.values()], dim=-1)

    def predict_next(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b dim"]:
        """Predict the latent that follows the last one of observed frames."""
        return self.latents(self.step(self.tokens(latents), actions))

    def unroll(
        self,
        histories: Float[Tensor, "v h dim"],
        past: Float[Tensor, "p past width"],
        future: Float[Tensor, "p j horizon width"],
    ) -> Float[Tensor, "v j horizon dim"]:
        """Roll every history forward under every action sequence of its pool, one of ``p``.

        Unlike repeated :meth:`predict_next` it keeps the proprioception that every patch predicts,
        as upstream does. Rows go through the predictor a bounded number of tokens at a time.
        """
        v, (j, horizon) = len(histories), future.shape[1:3]
        pools = torch.cat([past[:, None].expand(-1, j, -1, -1), future], dim=2)  # (p, j, ...)
        embedded = self.embed_actions(pools.flatten(0, 1))  # (p * j, h + H - 1, emb)
        each = embedded.reshape(len(pools), j, *embedded.shape[1:])
        actions = each.repeat_interleave(v // len(pools), dim=0).flatten(0, 1)
        place = "cpu" if histories.device.type == "cpu" else "accelerator"
        size = max(1, PASS_TOKENS[place] // (self.history * self.patches))
        parts = []
        for rows in torch.split(torch.arange(v * j, device=histories.device), size):
            seen, found, first = self.tokens(histories[rows // j]), [], 0
            for end in range(seen.shape[1], seen.shape[1] + horizon):
                extra = max(0, seen.shape[1] - self.history)
                seen, first = seen[:, extra:], first + extra
                following = self.step(seen, actions[rows, first:end])
                found.append(self.latents(following))
                seen = torch.cat([seen, following[:, None]], dim=1)
            parts.append(torch.stack(found, dim=1))
        return torch.cat(parts).reshape(v, j, horizon, -1)
