"""PreJEPA (DINO-WM) checkpoints: config to network, stored names to ours."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from acpc_server.models.config import (
    VIT_SIZES,
    Count,
    EncoderConfig,
    Epsilon,
    Hidden,
    JsonObject,
    Part,
    Rate,
    Width,
    bad_config,
    parse_config,
)
from acpc_server.models.dinov3 import Dinov3, Dinov3Shape
from acpc_server.models.folder import CheckpointLimits
from acpc_server.models.frozen import ModelCard
from acpc_server.models.jepa_family import build_encoder, rename_old_layers
from acpc_server.models.prejepa import (
    ACTION,
    PROPRIO,
    FrozenPreJepa,
    PatchPredictor,
    PredictorShape,
    PreJepaModel,
    SlotEmbedder,
    frame_mask,
)
from acpc_server.models.vit import ViT
from acpc_server.models.weights import StateDict, StateReader, bad_weights, count_parameters, fill

MODULE = "stable_worldmodel.wm.prejepa"
TARGETS = ("stable_worldmodel.wm.PreJEPA", f"{MODULE}.PreJEPA", f"{MODULE}.prejepa.PreJEPA")
# Size, patch side, trained image side and whether DINOv2, of what ``create_backbone`` may name.
BACKBONES = {
    **{f"dinov2_{size}": (size, 14, 518, True) for size in ("small", "base", "large")},
    **{f"facebook/dinov2-{size}": (size, 14, 518, True) for size in ("small", "base", "large")},
    "dino_vits16": ("small", 16, 224, False),
    "facebook/dino-vits16": ("small", 16, 224, False),
    "dino_vits8": ("small", 8, 224, False),
    "facebook/dino-vits8": ("small", 8, 224, False),
    "dino_vitb16": ("base", 16, 224, False),
    "facebook/dino-vitb16": ("base", 16, 224, False),
    "dino_vitb8": ("base", 8, 224, False),
    "facebook/dino-vitb8": ("base", 8, 224, False),
    "vit_base_patch16": ("base", 16, 224, False),
    "google/vit-base-patch16-224": ("base", 16, 224, False),
    "vit_large_patch16": ("large", 16, 224, False),
    "google/vit-large-patch16-224": ("large", 16, 224, False),
}
# Of masked-image training and of classification.
UNUSED = {
    "backbone.embeddings.mask_token", "backbone.pooler.dense.weight", "backbone.pooler.dense.bias"
}  # fmt: skip
STORED_MASK = re.compile(r"^predictor\.transformer\.layers\.\d+\.0\.bias$")
Weight = Annotated[float, Field(ge=1e-12, le=1e12)]


class NamedBackbone(Part):
    """A backbone by its name at Hugging Face, or by the public library's alias of it."""

    target: Literal["stable_worldmodel.wm.prejepa.module.create_backbone"] = Field(alias="_target_")
    name: str


class Dinov2Shape(Part):
    """The keys of ``Dinov2Config`` that decide the network; others matter to training alone."""

    target: Literal[
        "transformers.Dinov2Config", "transformers.models.dinov2.configuration_dinov2.Dinov2Config"
    ] = Field(alias="_target_")
    hidden_size: Width = 768
    num_hidden_layers: Count = 12
    num_attention_heads: Count = 12
    mlp_ratio: Annotated[int, Field(ge=1, le=16)] = 4
    image_size: Annotated[int, Field(ge=1, le=4096)] = 224
    patch_size: Annotated[int, Field(ge=1, le=512)] = 14
    layer_norm_eps: Epsilon = 1e-6
    hidden_act: Literal["gelu"] = "gelu"
    qkv_bias: Literal[True] = True
    num_channels: Literal[3] = 3
    use_swiglu_ffn: Literal[False] = False
    use_mask_token: bool = True
    layerscale_value: float = 1.0
    initializer_range: float = 0.02
    drop_path_rate: Rate = 0.0
    hidden_dropout_prob: Rate = 0.0
    attention_probs_dropout_prob: Rate = 0.0


class Dinov3Config(Part):
    """The keys of ``DINOv3ViTConfig`` that decide the network; others matter to training alone."""

    target: Literal["transformers.DINOv3ViTConfig"] = Field(alias="_target_")
    hidden_size: Width = 384
    num_hidden_layers: Count = 12
    num_attention_heads: Count = 6
    intermediate_size: Hidden = 1536
    patch_size: Annotated[int, Field(ge=1, le=512)] = 16
    num_register_tokens: Annotated[int, Field(ge=0, le=64)] = 0
    rope_theta: Annotated[float, Field(ge=1, le=1e9)] = 100.0
    layer_norm_eps: Epsilon = 1e-5


class Dinov3Backbone(Part):
    """A DINOv3 backbone with its geometry written out."""

    target: Literal["transformers.DINOv3ViTModel"] = Field(alias="_target_")
    config: Dinov3Config


class Dinov2Backbone(Part):
    """A DINOv2 backbone with its geometry written out."""

    target: Literal[
        "transformers.Dinov2Model", "transformers.models.dinov2.modeling_dinov2.Dinov2Model"
    ] = Field(alias="_target_")
    config: Dinov2Shape


class CausalPredictorConfig(Part):
    """The patch predictor. ``pool`` is stored and never read upstream."""

    target: Literal["stable_worldmodel.wm.prejepa.module.CausalPredictor"] = Field(alias="_target_")
    num_patches: Annotated[int, Field(ge=1, le=65536)]
    num_frames: Count
    dim: Width
    depth: Count
    heads: Count
    mlp_dim: Hidden
    dim_head: Annotated[int, Field(ge=1, le=1024)] = 64
    pool: Literal["cls", "mean"] = "cls"
    dropout: Rate = 0.0
    emb_dropout: Rate = 0.0


class SlotConfig(Part):
    """One slot beside the visual coordinates."""

    target: Literal["stable_worldmodel.wm.prejepa.module.Embedder"] = Field(alias="_target_")
    in_chans: Width = 8
    emb_dim: Width = 10
    num_frames: Count = 1
    tubelet_size: Literal[1] = 1


class SlotsConfig(Part):
    """All slots, in the order in which they follow the visual coordinates."""

    target: Literal["torch.nn.ModuleDict", "torch.nn.modules.container.ModuleDict"] = Field(
        alias="_target_"
    )
    modules: dict[Literal["action", "proprio"], SlotConfig]


class PreJepaConfig(Part):
    """A PreJEPA checkpoint. ``num_pred`` says what was trained and is ignored, as upstream."""

    target: Literal[TARGETS] = Field(alias="_target_")  # type: ignore[valid-type]
    encoder: JsonObject
    predictor: CausalPredictorConfig
    extra_encoders: SlotsConfig
    decoder: None = None
    history_size: Count = 3
    num_pred: Count = 1
    interpolate_pos_encoding: Literal[True] = True


class PreJepaOptions(Part):
    """What ``acpc.json`` may say beside a PreJEPA config.

    Attributes:
        backbone: File with the backbone's weights, below the checkpoint root; None: they stand
            among the others.
        proprio_weight: Of the mean square over the proprio embedding, beside that over visual
            coordinates, in every distance and cost.
        proprio_patches: Whose embedding of proprioception a latent holds: that which the first
            patch predicts, as stable-worldmodel's cost reads it, or every patch's, as jepa-wms'.
    """

    backbone: str | None = None
    proprio_weight: Weight = 1.0
    proprio_patches: Literal["first", "every"] = "first"


class PreJepaFamily:
    """Builder of the family ``"prejepa"``."""

    name = "prejepa"
    targets = frozenset(TARGETS)

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
        parsed = parse_config(PreJepaConfig, config)
        options = state.parse_options(PreJepaOptions)
        with torch.device("meta"):
            network = build_network(parsed, options)
        count = count_parameters(network, limits)
        used = _without_masks(used_weights(state, network), parsed.predictor, state.filename)
        fill(network, used, state.filename)
        slots = parsed.extra_encoders.modules
        card = ModelCard(
            family=self.name,
            # The digest of a config has no order of keys, but slots have one.
            digest=hashlib.sha256(f"{state.digest}:{','.join(slots)}".encode()).hexdigest(),
            image_size=math.isqrt(network.patches) * network.backbone.patch_size,
            latent_dim=network.visual + network.proprio,
            history=network.history,
            action_block_dim=slots[ACTION].in_chans,
            parameter_count=count,
            proprio_dim=slots[PROPRIO].in_chans if PROPRIO in slots else 0,
            latent_tokens=network.patches,
        )
        return FrozenPreJepa(network, card, device)


def build_network(config: PreJepaConfig, options: PreJepaOptions) -> PreJepaModel:
    """The network of a config, with fresh weights; UnsafeCheckpoint if widths do not fit."""
    backbone, predictor = build_backbone(config.encoder), config.predictor
    slots = config.extra_encoders.modules
    if ACTION not in slots:
        raise bad_config(
            "extra_encoders.modules", "no action slot, without which no action is seen"
        )
    width = backbone.width + sum(slot.emb_dim for slot in slots.values())
    if predictor.dim != width:
        parts = " + ".join(f"{key} {slot.emb_dim}" for key, slot in slots.items())
        raise bad_config(
            "predictor.dim",
            f"{predictor.dim}, but the backbone's width {backbone.width} + {parts} is {width}",
        )
    if math.isqrt(predictor.num_patches) ** 2 != predictor.num_patches:
        raise bad_config(
            "predictor.num_patches", f"{predictor.num_patches} is no square number of patches"
        )
    if config.history_size > predictor.num_frames:
        raise bad_config(
            "history_size",
            f"{config.history_size}, but the predictor has positions for "
            f"predictor.num_frames = {predictor.num_frames} frames",
        )
    shape = PredictorShape(
        patches=predictor.num_patches,
        frames=predictor.num_frames,
        width=width,
        depth=predictor.depth,
        heads=predictor.heads,
        dim_head=predictor.dim_head,
        hidden=predictor.mlp_dim,
    )
    embedders = {str(key): SlotEmbedder(slot.in_chans, slot.emb_dim) for key, slot in slots.items()}
    return PreJepaModel(
        backbone,
        PatchPredictor(shape),
        embedders,
        config.history_size,
        options.proprio_weight,
        shape.patches if options.proprio_patches == "every" else 1,
    )


def build_backbone(node: JsonObject) -> ViT | Dinov3:
    """The backbone that a config names or writes out; UnsafeCheckpoint for an unknown one."""
    target = str(node.get("_target_"))
    if target.endswith(".Dinov2Model"):
        shape = parse_config(Dinov2Backbone, node, "encoder").config
        geometry = (
            shape.hidden_size, shape.num_hidden_layers, shape.num_attention_heads,
            shape.mlp_ratio * shape.hidden_size,
        )  # fmt: skip
        sides = shape.patch_size, shape.image_size
        return _vit(geometry, *sides, eps=shape.layer_norm_eps, scaled=True)
    if target.endswith(".DINOv3ViTModel"):
        return _dinov3(parse_config(Dinov3Backbone, node, "encoder").config)
    if target.endswith(".vit_hf"):
        return build_encoder(parse_config(EncoderConfig, node, "encoder"))
    name = parse_config(NamedBackbone, node, "encoder").name
    if name not in BACKBONES:
        raise bad_config(
            "encoder.name",
            f"{name[:80]!r} is not a backbone the server has; nothing was downloaded; known: "
            f"{', '.join(BACKBONES)}, or a transformers.Dinov2Model with its config written out",
        )
    size, patch, side, scaled = BACKBONES[name]
    width, depth, heads = VIT_SIZES[size]
    eps = 1e-6 if scaled else 1e-12
    return _vit((width, depth, heads, 4 * width), patch, side, eps=eps, scaled=scaled)


def _dinov3(config: Dinov3Config) -> Dinov3:
    width, heads = config.hidden_size, config.num_attention_heads
    if width % (4 * heads):
        raise bad_config(
            "encoder.config.num_attention_heads",
            f"{heads} heads of a multiple of 4 coordinates do not divide the width {width}",
        )
    return Dinov3(
        Dinov3Shape(
            width=width,
            depth=config.num_hidden_layers,
            heads=heads,
            hidden=config.intermediate_size,
            patch_size=config.patch_size,
            registers=config.num_register_tokens,
            theta=config.rope_theta,
            eps=config.layer_norm_eps,
        )
    )


def _vit(
    geometry: tuple[int, int, int, int], patch: int, side: int, *, eps: float, scaled: bool
) -> ViT:
    width, depth, heads, hidden = geometry
    tree = {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "patch_size": patch,
        "image_size": side,
        "use_mask_token": False,
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": hidden,
        "layer_norm_eps": eps,
    }
    return build_encoder(parse_config(EncoderConfig, tree, "encoder"), scaled=scaled)


def used_weights(state: StateReader, network: PreJepaModel) -> StateDict:
    """Stored tensors under our names, without those of a backbone that inference never reads."""
    unused = UNUSED - network.state_dict().keys()
    renamed = rename_old_layers(state.tensors, state.filename)
    return {name: tensor for name, tensor in renamed.items() if name not in unused}


def _without_masks(state: StateDict, shape: CausalPredictorConfig, filename: str) -> StateDict:
    """The stored attention masks are checked and left out."""
    kept: StateDict = {}
    for name, tensor in state.items():
        if STORED_MASK.match(name):
            _check_mask(name, tensor, shape, filename)
            continue
        kept[name] = tensor
    return kept


def _check_mask(name: str, mask: Tensor, shape: CausalPredictorConfig, filename: str) -> None:
    side = shape.num_patches * shape.num_frames
    if mask.shape != (1, 1, side, side):
        found, wanted = tuple(mask.shape), (1, 1, side, side)
        raise bad_weights(filename, name, f"shape {found}, but the config wants {wanted}")
    causal = frame_mask(shape.num_frames, shape.num_patches, mask.device)
    if not torch.equal(mask[0, 0] == 1, causal):
        raise bad_weights(filename, name, "an attention mask that is not causal between frames")
