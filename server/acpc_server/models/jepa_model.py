"""The world model of LeWM and PLDM, which differ in how they are trained, not in what they compute.

A rollout feeds the predictor a sliding window of at most ``num_frames`` tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from acpc_server.errors import InvalidArgument
from acpc_server.models.jepa import Embedder, Predictor
from acpc_server.models.vit import ViT


class JepaModel(nn.Module):
    """Encoder and predictor in one projected latent space.

    Observations become ``projector(CLS)`` and predictions ``pred_proj(predictor)``; planner costs
    and every distance of the paper live in that space. Attribute names give the state dict the
    public layout. It can be trained; for inference see ``frozen.FrozenJepa``.
    """

    def __init__(
        self,
        encoder: ViT,
        predictor: Predictor,
        action_encoder: Embedder,
        projector: nn.Module | None = None,
        pred_proj: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.predictor = predictor
        self.action_encoder = action_encoder
        self.projector = projector if projector is not None else nn.Identity()
        self.pred_proj = pred_proj if pred_proj is not None else nn.Identity()

    def check_frames(self, height: int, width: int) -> None:
        """Raise InvalidArgument for frames smaller than one patch."""
        patch = self.encoder.patch_size
        if min(height, width) < patch:
            raise InvalidArgument(
                "frames",
                f"height {height} and width {width}; the encoder's patches are {patch} pixels a "
                "side",
            )

    def encode(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n dim"]:
        """Projected latents of normalised frames."""
        return self.projector(self.encoder(frames))

    def embed_actions(self, blocks: Float[Tensor, "b t block"]) -> Float[Tensor, "b t emb"]:
        """Embeddings of normalised action blocks."""
        return self.action_encoder(blocks)

    def predict(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b t dim"]:
        """Predict for every token the projected latent that follows it (training)."""
        tokens = self.predictor(latents, actions)  # (b, t, out)
        projected: Tensor = self.pred_proj(tokens.flatten(0, 1))  # (b * t, dim)
        return projected.view(*tokens.shape[:2], -1)

    def predict_next(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b dim"]:
        """The last token of ``predict`` alone; equal to it in eval mode and cheaper."""
        out: Tensor = self.pred_proj(self.predictor(latents, actions, last_only=True)[:, -1])
        return out

    def unroll(
        self,
        histories: Float[Tensor, "v h dim"],
        past: Float[Tensor, "p past width"],
        future: Float[Tensor, "p j horizon width"],
    ) -> Float[Tensor, "v j horizon dim"]:
        """Roll every history forward under every action sequence of its pool, one of ``p``.

        Equal to predicting window by window; see :func:`acpc_server.models.rollout.rollout` for
        which latents and blocks meet at a step. Every step is one call of :meth:`step` for all
        rows; what actions do to a layer is computed once for all steps and views.
        """
        h, (p, j, horizon, _) = histories.shape[1], future.shape
        transformer = self.predictor.transformer
        blocks = torch.cat([past[:, None].expand(-1, j, -1, -1), future], dim=2)
        embedded = transformer.cond_proj(self.embed_actions(blocks.flatten(0, 1)))
        modulations = [
            layer.adaLN_modulation(embedded).reshape(p, 1, j, h - 1 + horizon, -1)
            for layer in transformer.blocks
        ]
        latents = [x.expand(-1, j, -1) for x in histories[:, :, None].unbind(1)]  # (v, j, dim)
        for end in range(h, h + horizon):
            start = max(0, end - self.predictor.num_frames)
            window = torch.stack(latents[start:end], dim=2)  # (v, j, t, dim)
            latents.append(self.step(window, [x[:, :, :, start:end] for x in modulations]))
        return torch.stack(latents[h:], dim=2)

    def step(
        self, window: Float[Tensor, "v j t dim"], modulations: list[Float[Tensor, "p 1 j t six"]]
    ) -> Float[Tensor, "v j dim"]:
        """The latent after a window, as :meth:`predict_next`; modulations are of each layer.

        ``p`` divides ``v``: so many pools, each for a run of histories.
        """
        (v, j, t, _), pools = window.shape, len(modulations[0])
        transformer = self.predictor.transformer
        inputs = transformer.input_proj(window + self.predictor.pos_embedding[:, :t])
        hidden = inputs.reshape(pools, v // pools, j, t, -1)
        for index, layer in enumerate(transformer.blocks):
            hidden = layer.modulated(hidden, modulations[index], index + 1 == len(modulations))
        out = transformer.output_proj(transformer.norm(hidden[..., -1, :]))
        return self.pred_proj(out.reshape(v * j, -1)).view(v, j, -1)
