"""The world model of LeWM and PLDM, which differ in how they are trained, not in what they compute.

It rolls out by :class:`acpc_server.models.jepa_rollout.JepaRollout`.
"""

from __future__ import annotations

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
