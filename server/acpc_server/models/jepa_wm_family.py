"""JEPA-WM checkpoints: config to network. The names of jepa-wms' tensors are ours."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from acpc_server.models.config import Count, JsonObject, Part, Width, bad_config, parse_config
from acpc_server.models.folder import CheckpointLimits
from acpc_server.models.frozen import ModelCard
from acpc_server.models.jepa_wm import AdaLnPredictor, AdaLnShape, JepaWmModel
from acpc_server.models.prejepa import FrozenPreJepa, SlotEmbedder
from acpc_server.models.prejepa_family import PreJepaOptions, build_backbone, used_weights
from acpc_server.models.weights import StateReader, count_parameters, fill

TARGET = "app.vjepa_wm.video_wm.VideoWM"


class AdaLnConfig(Part):
    """The predictor, in the words of its constructor."""

    target: Literal["app.plan_common.models.AdaLN_vit.vit_predictor_AdaLN"] = Field(
        alias="_target_"
    )
    num_frames: Count = 4
    embed_dim: Width
    predictor_embed_dim: Width
    depth: Count
    num_heads: Count
    action_dim: Width
    proprio_dim: Width | None = None
    proprio_emb_dim: Width | None = None


class JepaWmConfig(Part):
    """A JEPA-WM checkpoint; ``img_size`` in pixels, ``ctxt_window`` in frames."""

    target: Literal["app.vjepa_wm.video_wm.VideoWM"] = Field(alias="_target_")
    encoder: JsonObject
    predictor: AdaLnConfig
    img_size: Width = 224
    ctxt_window: Count = 2


class JepaWmOptions(PreJepaOptions):
    """As PreJEPA's, with the default that is jepa-wms' cost."""

    proprio_patches: Literal["first", "every"] = "every"


class JepaWmFamily:
    """Builder of the family ``"jepa_wm"``."""

    name = "jepa_wm"
    targets = frozenset({TARGET})

    def build(
        self,
        config: JsonObject,
        state: StateReader,
        *,
        device: torch.device,
        limits: CheckpointLimits,
    ) -> FrozenPreJepa:
        """Check the config, then the weights against it, then make the model.

        Raises:
            UnsafeCheckpoint: Any of the checks fails; the message names the key.
        """
        parsed = parse_config(JepaWmConfig, config)
        options = state.parse_options(JepaWmOptions)
        with torch.device("meta"):
            network = build_network(parsed, options)
        count = count_parameters(network, limits)
        fill(network, used_weights(state, network), state.filename)
        card = ModelCard(
            family=self.name,
            digest=state.digest,
            image_size=parsed.img_size,
            latent_dim=network.visual + network.proprio,
            history=network.history,
            action_block_dim=parsed.predictor.action_dim,
            parameter_count=count,
            proprio_dim=parsed.predictor.proprio_dim or 0,
            latent_tokens=network.patches,
        )
        return FrozenPreJepa(network, card, device)


def build_network(config: JepaWmConfig, options: JepaWmOptions) -> JepaWmModel:
    """The network of a config, with fresh weights; UnsafeCheckpoint if widths do not fit."""
    backbone, predictor = build_backbone(config.encoder), config.predictor
    if predictor.embed_dim != backbone.width:
        raise bad_config(
            "predictor.embed_dim",
            f"{predictor.embed_dim}, but the backbone's width is {backbone.width}",
        )
    if (predictor.proprio_dim is None) != (predictor.proprio_emb_dim is None):
        raise bad_config("predictor.proprio_emb_dim", "stands with proprio_dim, or both are absent")
    shape = AdaLnShape(
        patches=(config.img_size // backbone.patch_size) ** 2,
        visual=predictor.embed_dim,
        inner=predictor.predictor_embed_dim,
        slot=predictor.proprio_emb_dim or 0,
        action=predictor.action_dim,
        depth=predictor.depth,
        heads=predictor.num_heads,
    )
    if not shape.patches or config.img_size % backbone.patch_size:
        raise bad_config(
            "img_size", f"{config.img_size} is no whole patches of {backbone.patch_size} pixels"
        )
    if shape.width % shape.heads:
        raise bad_config(
            "predictor.num_heads", f"{shape.heads} heads do not divide the width {shape.width}"
        )
    if config.ctxt_window > predictor.num_frames:
        raise bad_config(
            "ctxt_window",
            f"{config.ctxt_window}, but the predictor attends over "
            f"predictor.num_frames = {predictor.num_frames} frames",
        )
    proprio = (
        SlotEmbedder(predictor.proprio_dim, shape.slot)
        if predictor.proprio_dim is not None
        else None
    )
    return JepaWmModel(
        backbone,
        AdaLnPredictor(shape),
        proprio,
        config.ctxt_window,
        options.proprio_weight,
        shape.patches if options.proprio_patches == "every" else 1,
    )
