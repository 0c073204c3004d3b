"""The parts of checkpoints' configs: every target that the server builds, with its arguments.

Dropout rates, initialisers and what else matters to training alone is accepted and ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from acpc_server.models.config import JsonObject, Part

ACTION: Final = "action"
PROPRIO: Final = "proprio"
FAMILY_OF_TARGET = {
    "stable_worldmodel.wm.LeWM": "lewm",
    "stable_worldmodel.wm.lewm.LeWM": "lewm",
    "stable_worldmodel.wm.lewm.lewm.LeWM": "lewm",
    "jepa.JEPA": "lewm",
    "stable_worldmodel.wm.PLDM": "pldm",
    "stable_worldmodel.wm.pldm.PLDM": "pldm",
    "stable_worldmodel.wm.pldm.pldm.PLDM": "pldm",
}
_PREJEPA = "stable_worldmodel.wm.prejepa"
PREJEPA_TARGETS = (
    "stable_worldmodel.wm.PreJEPA", f"{_PREJEPA}.PreJEPA", f"{_PREJEPA}.prejepa.PreJEPA"
)  # fmt: skip
# Width, layers and heads of the sizes vit_hf knows; the MLPs are four times as wide.
VIT_SIZES = {
    "tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}  # fmt: skip

Count = Annotated[int, Field(ge=1, le=256)]
Width = Annotated[int, Field(ge=1, le=16384)]
Hidden = Annotated[int, Field(ge=1, le=65536)]
HeadWidth = Annotated[int, Field(ge=1, le=1024)]
ImageSide = Annotated[int, Field(ge=1, le=4096)]
PatchSide = Annotated[int, Field(ge=1, le=512)]
Epsilon = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=1e-12, le=1e12)]
TARGET: Any = Field(alias="_target_")
NO_TARGET: Any = Field(None, alias="_target_")


def _spelled(*names: str) -> tuple[str, ...]:
    """List the names of a class in configs of the public library and the original repository."""
    modules = ("stable_worldmodel.wm.lewm.module", "stable_worldmodel.wm.pldm.module", "module")
    return tuple(f"{module}.{name}" for module in modules for name in names)


class _VitKeys(Part):
    hidden_act: Literal["gelu"] = "gelu"
    qkv_bias: Literal[True] = True
    num_channels: Literal[3] = 3
    use_mask_token: bool = True
    hidden_dropout_prob: Rate = 0.0
    attention_probs_dropout_prob: Rate = 0.0
    initializer_range: float = 0.02


class EncoderConfig(_VitKeys):
    """``vit_hf``: a named size, any field of which the ViTConfig keys override.

    ``pretrained`` says where upstream's initial weights come from; the weights file replaces them.
    """

    target: Literal["stable_pretraining.backbone.utils.vit_hf"] = TARGET
    size: Literal["tiny", "small", "base", "large", "huge"] = "tiny"
    patch_size: PatchSide = 16
    image_size: ImageSide = 224
    pretrained: bool = False
    hidden_size: Width | None = None
    num_hidden_layers: Count | None = None
    num_attention_heads: Count | None = None
    intermediate_size: Hidden | None = None
    layer_norm_eps: Epsilon = 1e-12

    @property
    def geometry(self) -> tuple[int, int, int, int]:
        """Token width, layers, heads and hidden width of the MLPs."""
        width, depth, heads = VIT_SIZES[self.size]
        return (
            self.hidden_size or width,
            self.num_hidden_layers or depth,
            self.num_attention_heads or heads,
            self.intermediate_size or 4 * width,
        )


class NamedBackbone(Part):
    """A backbone by its name at Hugging Face, or by the public library's alias of it."""

    target: Literal["stable_worldmodel.wm.prejepa.module.create_backbone"] = TARGET
    name: str


class Dinov2Config(_VitKeys):
    """``Dinov2Config`` of transformers."""

    target: Literal[
        "transformers.Dinov2Config", "transformers.models.dinov2.configuration_dinov2.Dinov2Config"
    ] = TARGET
    hidden_size: Width = 768
    num_hidden_layers: Count = 12
    num_attention_heads: Count = 12
    mlp_ratio: Annotated[int, Field(ge=1, le=16)] = 4
    image_size: ImageSide = 224
    patch_size: PatchSide = 14
    layer_norm_eps: Epsilon = 1e-6
    use_swiglu_ffn: Literal[False] = False
    layerscale_value: float = 1.0
    drop_path_rate: Rate = 0.0


class Dinov2Backbone(Part):
    """A DINOv2 backbone with its geometry written out."""

    target: Literal[
        "transformers.Dinov2Model", "transformers.models.dinov2.modeling_dinov2.Dinov2Model"
    ] = TARGET
    config: Dinov2Config


class _TransformerKeys(Part):
    num_frames: Count
    depth: Count
    heads: Count
    dim_head: HeadWidth = 64
    mlp_dim: Hidden
    dropout: Rate = 0.0
    emb_dropout: Rate = 0.0


class PredictorConfig(_TransformerKeys):
    """The causal AdaLN-zero predictor. Early configs have no ``_target_`` here."""

    target: Literal[(*_spelled("Predictor", "ARPredictor"), None)] = NO_TARGET  # type: ignore[valid-type]
    input_dim: Width
    hidden_dim: Width
    output_dim: Width | None = None


class EmbedderConfig(Part):
    """The action-block embedder. Early configs have no ``_target_`` here."""

    target: Literal[(*_spelled("Embedder"), None)] = NO_TARGET  # type: ignore[valid-type]
    input_dim: Width = 10
    smoothed_dim: Width = 10
    emb_dim: Width = 10
    mlp_scale: Count = 4


class Factory(BaseModel):
    """A layer named without being made."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    partial: Literal[True] = Field(alias="_partial_")


class NormConfig(Factory):
    """Factory of a normalisation layer. ``momentum`` matters to training alone."""

    target: Literal[
        "torch.nn.BatchNorm1d", "torch.nn.modules.batchnorm.BatchNorm1d",
        "torch.nn.LayerNorm", "torch.nn.modules.normalization.LayerNorm",
    ] = TARGET  # fmt: skip
    eps: Epsilon = 1e-5
    momentum: Rate | None = 0.1


class ActivationConfig(Factory):
    """Factory of an activation."""

    target: Literal[
        "torch.nn.GELU", "torch.nn.modules.activation.GELU",
        "torch.nn.ReLU", "torch.nn.modules.activation.ReLU",
        "torch.nn.SiLU", "torch.nn.modules.activation.SiLU",
    ] = TARGET  # fmt: skip


LAYER_NORM = NormConfig.model_validate({"_target_": "torch.nn.LayerNorm", "_partial_": True})
GELU = ActivationConfig.model_validate({"_target_": "torch.nn.GELU", "_partial_": True})


class MlpConfig(Part):
    """A projection head; ``norm_fn`` null means none, absent means LayerNorm."""

    target: Literal[_spelled("MLP")] = TARGET  # type: ignore[valid-type]
    input_dim: Width
    hidden_dim: Hidden
    output_dim: Width | None = None
    norm_fn: NormConfig | None = LAYER_NORM
    act_fn: ActivationConfig = GELU


class IdentityConfig(Part):
    """No projection head."""

    target: Literal["torch.nn.Identity", "torch.nn.modules.linear.Identity"] = TARGET


def _head_tag(value: object) -> str:
    target = value.get("_target_") if isinstance(value, dict) else None
    return "<identity>" if str(target).endswith(".Identity") else "<mlp>"


HeadConfig = Annotated[
    Annotated[MlpConfig, Tag("<mlp>")] | Annotated[IdentityConfig, Tag("<identity>")],
    Discriminator(_head_tag),
]


class JepaConfig(Part):
    """A LeWM or PLDM checkpoint.

    The original repository writes ``embed_dim`` and ``history_size`` beside the parts; they repeat
    what the parts say and are ignored, as upstream ignores them.
    """

    target: Literal[tuple(FAMILY_OF_TARGET)] = TARGET  # type: ignore[valid-type]
    encoder: EncoderConfig
    predictor: PredictorConfig
    action_encoder: EmbedderConfig
    projector: HeadConfig | None = None
    pred_proj: HeadConfig | None = None
    embed_dim: int | None = None
    history_size: int | None = None


class CausalPredictorConfig(_TransformerKeys):
    """The patch predictor of PreJEPA. ``pool`` is stored and never read upstream."""

    target: Literal["stable_worldmodel.wm.prejepa.module.CausalPredictor"] = TARGET
    num_patches: Annotated[int, Field(ge=1, le=65536)]
    dim: Width
    pool: Literal["cls", "mean"] = "cls"


class SlotConfig(Part):
    """One slot beside the visual coordinates."""

    target: Literal["stable_worldmodel.wm.prejepa.module.Embedder"] = TARGET
    in_chans: Width = 8
    emb_dim: Width = 10
    num_frames: Count = 1
    tubelet_size: Literal[1] = 1


class SlotsConfig(Part):
    """All slots, in the order in which they follow the visual coordinates."""

    target: Literal["torch.nn.ModuleDict", "torch.nn.modules.container.ModuleDict"] = TARGET
    modules: dict[Literal["action", "proprio"], SlotConfig]


class PreJepaConfig(Part):
    """A PreJEPA checkpoint. ``num_pred`` says what was trained and is ignored, as upstream."""

    target: Literal[PREJEPA_TARGETS] = TARGET  # type: ignore[valid-type]
    encoder: JsonObject
    predictor: CausalPredictorConfig
    extra_encoders: SlotsConfig
    decoder: None = None
    history_size: Count = 3
    num_pred: Count = 1
    interpolate_pos_encoding: Literal[True] = True


class PreJepaOptions(Part):
    """``acpc.json`` beside a PreJEPA config.

    Attributes:
        backbone: File with the backbone's weights, below the checkpoint root; None: they stand
            among the others.
        proprio_weight: Weight of the mean square over the proprio embedding in every distance and
            cost; that over visual coordinates has weight 1.
    """

    backbone: str | None = None
    proprio_weight: Weight = 1.0
