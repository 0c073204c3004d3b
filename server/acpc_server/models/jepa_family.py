"""LeWM and PLDM checkpoints: config to network, stored names to ours."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import torch
from torch import nn

from acpc_server.models.config import (
    FAMILY_OF_TARGET,
    EncoderConfig,
    IdentityConfig,
    JepaConfig,
    JsonObject,
    MlpConfig,
    Part,
    bad_config,
    parse_config,
)
from acpc_server.models.folder import CheckpointLimits
from acpc_server.models.frozen import FrozenJepa, ModelCard
from acpc_server.models.jepa import Embedder, JepaModel, Predictor, ProjectionMlp
from acpc_server.models.vit import ViT
from acpc_server.models.weights import StateDict, StateReader, bad_weights, count_parameters, fill

# Layer names of transformers 4.x, and of DINOv2 in all its releases, and those of ViT in 5.x.
OLD_LAYER = re.compile(r"^(encoder|backbone)\.encoder\.layer\.(\d+)\.(.+?)(\.weight|\.bias|)$")
NEW_PART = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "layernorm_before": "layernorm_before",
    "layernorm_after": "layernorm_after",
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "layer_scale1.lambda1": "layer_scale1",
    "layer_scale2.lambda1": "layer_scale2",
    **{name: name for name in ("mlp.fc1", "mlp.fc2", *(f"attention.{x}_proj" for x in "qkvo"))},
}


@dataclass(frozen=True)
class JepaFamily:
    """Builder of the two families, ``"lewm"`` and ``"pldm"``, which share one inference graph."""

    name: str

    @property
    def targets(self) -> AbstractSet[str]:
        """The ``_target_`` spellings of this family."""
        return {target for target, name in FAMILY_OF_TARGET.items() if name == self.name}

    def build(
        self,
        config: JsonObject,
        state: StateReader,
        *,
        device: torch.device,
        limits: CheckpointLimits,
    ) -> FrozenJepa:
        """Check the config, then the weights against it, then make the model.

        Raises:
            UnsafeCheckpoint: Any of the checks fails; the message names the key.
        """
        parsed = parse_config(JepaConfig, config)
        state.parse_options(Part)  # there are none
        with torch.device("meta"):
            network = build_network(parsed)
        count = count_parameters(network, limits)
        fill(network, rename_old_layers(state.tensors, state.filename), state.filename)
        card = ModelCard(
            family=self.name,
            digest=state.digest,
            image_size=parsed.encoder.image_size,
            latent_dim=parsed.predictor.input_dim,
            history=parsed.predictor.num_frames,
            action_block_dim=parsed.action_encoder.input_dim,
            parameter_count=count,
        )
        return FrozenJepa(network, card, device)


def build_network(config: JepaConfig) -> JepaModel:
    """The network of a config, with fresh weights; UnsafeCheckpoint if widths do not fit."""
    encoder = build_encoder(config.encoder)
    predictor, actions = config.predictor, config.action_encoder
    output_dim = predictor.output_dim or predictor.input_dim
    latent_dim = _head_width(config.projector, "projector", encoder.width, "the encoder's width")
    _check_equal("predictor.input_dim", predictor.input_dim, latent_dim, "the latents' width")
    _check_equal("action_encoder.emb_dim", actions.emb_dim, latent_dim, "predictor.input_dim")
    predicted = _head_width(config.pred_proj, "pred_proj", output_dim, "the predictor's output")
    last = "pred_proj.output_dim" if config.pred_proj else "predictor.output_dim"
    _check_equal(last, predicted, latent_dim, "the latents' width")
    return JepaModel(
        encoder=encoder,
        predictor=Predictor(predictor),
        action_encoder=Embedder(actions),
        projector=_build_head(config.projector),
        pred_proj=_build_head(config.pred_proj),
    )


def rename_old_layers(state: StateDict, filename: str) -> StateDict:
    """The same tensors under ViT's names of transformers 5.x; UnsafeCheckpoint if two meet."""
    renamed: StateDict = {}
    for name, tensor in state.items():
        old = OLD_LAYER.match(name)
        new = name
        if old and old[3] in NEW_PART:
            new = f"{old[1]}.layers.{old[2]}.{NEW_PART[old[3]]}{old[4]}"
        if new in renamed:
            raise bad_weights(filename, name, f"stored a second time as {new}")
        renamed[new] = tensor
    return renamed


def build_encoder(config: EncoderConfig, *, scaled: bool = False) -> ViT:
    """The vision transformer of a config, with fresh weights; UnsafeCheckpoint if it cannot be."""
    overrides = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    if config.pretrained and any(getattr(config, name) for name in overrides):
        # Upstream then takes the geometry from the pretrained model and drops the overrides.
        raise bad_config("encoder.pretrained", "true beside keys that override the size")
    width, _, heads, _ = config.geometry
    if width % heads:
        raise bad_config(
            "encoder.num_attention_heads", f"{heads} heads do not divide the width {width}"
        )
    if config.patch_size > config.image_size:
        raise bad_config(
            "encoder.patch_size",
            f"{config.patch_size} exceeds encoder.image_size {config.image_size}",
        )
    return ViT(config, scaled=scaled)


def _head_width(
    head: MlpConfig | IdentityConfig | None, name: str, entering: int, source: str
) -> int:
    if not isinstance(head, MlpConfig):
        return entering
    _check_equal(f"{name}.input_dim", head.input_dim, entering, source)
    return head.output_dim or head.input_dim


def _build_head(head: MlpConfig | IdentityConfig | None) -> nn.Module:
    return ProjectionMlp(head) if isinstance(head, MlpConfig) else nn.Identity()


def _check_equal(key: str, found: int, wanted: int, source: str) -> None:
    if found != wanted:
        raise bad_config(key, f"{found}, but {source} is {wanted}")
