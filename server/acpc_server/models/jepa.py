"""The network of LeWM and PLDM: they differ in how it is trained, not in what it computes."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from acpc_server.models.predictor import Embedder, Predictor
from acpc_server.models.vit import ViT


class JepaModel(nn.Module):
    """Encoder and predictor in one projected latent space.

    Observations become ``projector(CLS)`` and predictions ``pred_proj(predictor)``; planner costs
    and every distance of the paper live in that space. Attribute names give the state dict the
    public layout: ``encoder.*``, ``predictor.*``, ``action_encoder.*``, ``projector.*``,
    ``pred_proj.*``. It can be trained; for inference see ``frozen.FrozenJepa``.
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

    def encode(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n dim"]:
        """Projected latents of normalised frames."""
        out: Tensor = self.projector(self.encoder(frames))
        return out

    def embed_actions(self, blocks: Float[Tensor, "b t block"]) -> Float[Tensor, "b t emb"]:
        """Embeddings of normalised action blocks."""
        out: Tensor = self.action_encoder(blocks)
        return out

    def predict(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b t dim"]:
        """For every token the projected latent predicted to follow it (training)."""
        tokens = self.predictor(latents, actions)  # (b, t, out)
        projected: Tensor = self.pred_proj(tokens.flatten(0, 1))  # (b * t, dim)
        return projected.view(*tokens.shape[:2], -1)

    def predict_next(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b dim"]:
        """The last token of ``predict`` alone; equal to it in eval mode and cheaper."""
        out: Tensor = self.pred_proj(self.predictor(latents, actions, last_only=True)[:, -1])
        return out
