"""Reads the public ``config.json`` as data and matches it against a closed set of targets.

Upstream instantiates this tree and so runs whatever it names. Here a ``_target_`` is only a tag:
each known spelling selects one of the models below, and everything else is rejected with the path
of the offending key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError
from pydantic_core import ErrorDetails

from acpc_server.errors import UnsafeCheckpoint

JsonObject = dict[str, Any]

FAMILY_OF_TARGET = {
    "stable_worldmodel.wm.lewm.LeWM": "lewm",
    "stable_worldmodel.wm.lewm.lewm.LeWM": "lewm",
    "jepa.JEPA": "lewm",
    "stable_worldmodel.wm.pldm.PLDM": "pldm",
    "stable_worldmodel.wm.pldm.pldm.PLDM": "pldm",
}
CONFIG_NAME, OPTIONS_NAME = "config.json", "acpc.json"
MAX_DEPTH = 16
# Width, layers and heads of the sizes vit_hf knows; the MLPs are four times as wide.
VIT_SIZES = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}

Count = Annotated[int, Field(ge=1, le=256)]
Width = Annotated[int, Field(ge=1, le=16384)]
Hidden = Annotated[int, Field(ge=1, le=65536)]
Epsilon = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(ge=0, le=1)]


class Part(BaseModel):
    """One node of the tree. Keys are exact, values are not coerced, unknown keys are errors.

    The three Hydra keys say how upstream would call the target; none changes the network.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)

    convert: Literal["none", "partial", "object", "all"] = Field("none", alias="_convert_")
    recursive: bool = Field(True, alias="_recursive_")
    partial: Literal[False] = Field(False, alias="_partial_")


Config = TypeVar("Config", bound=Part)


class EncoderConfig(Part):
    """``vit_hf``: a named size, any field of which the ViTConfig keys override.

    ``pretrained`` says where upstream's initial weights come from; the weights file replaces them.
    Dropout rates and the initialiser's range matter to training alone.
    """

    target: Literal["stable_pretraining.backbone.utils.vit_hf"] = Field(alias="_target_")
    size: Literal["tiny", "small", "base", "large", "huge"] = "tiny"
    patch_size: Annotated[int, Field(ge=1, le=512)] = 16
    image_size: Annotated[int, Field(ge=1, le=4096)] = 224
    pretrained: bool = False
    use_mask_token: bool = True
    hidden_size: Width | None = None
    num_hidden_layers: Count | None = None
    num_attention_heads: Count | None = None
    intermediate_size: Hidden | None = None
    layer_norm_eps: Epsilon = 1e-12
    hidden_act: Literal["gelu"] = "gelu"
    qkv_bias: Literal[True] = True
    num_channels: Literal[3] = 3
    hidden_dropout_prob: Rate = 0.0
    attention_probs_dropout_prob: Rate = 0.0
    initializer_range: float = 0.02

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


class PredictorConfig(Part):
    """The causal AdaLN-zero predictor. Early configs have no ``_target_`` here."""

    target: Literal[
        "stable_worldmodel.wm.lewm.module.Predictor",
        "stable_worldmodel.wm.lewm.module.ARPredictor",
        "stable_worldmodel.wm.pldm.module.Predictor",
        "stable_worldmodel.wm.pldm.module.ARPredictor",
        "module.Predictor",
        "module.ARPredictor",
        None,
    ] = Field(None, alias="_target_")
    num_frames: Count
    input_dim: Width
    hidden_dim: Width
    output_dim: Width | None = None
    depth: Count
    heads: Count
    dim_head: Annotated[int, Field(ge=1, le=1024)] = 64
    mlp_dim: Hidden
    dropout: Rate = 0.0
    emb_dropout: Rate = 0.0


class EmbedderConfig(Part):
    """The action-block embedder. Early configs have no ``_target_`` here."""

    target: Literal[
        "stable_worldmodel.wm.lewm.module.Embedder",
        "stable_worldmodel.wm.pldm.module.Embedder",
        "module.Embedder",
        None,
    ] = Field(None, alias="_target_")
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
        "torch.nn.BatchNorm1d",
        "torch.nn.modules.batchnorm.BatchNorm1d",
        "torch.nn.LayerNorm",
        "torch.nn.modules.normalization.LayerNorm",
    ] = Field(alias="_target_")
    eps: Epsilon = 1e-5
    momentum: Rate | None = 0.1


class ActivationConfig(Factory):
    """Factory of an activation."""

    target: Literal[
        "torch.nn.GELU",
        "torch.nn.modules.activation.GELU",
        "torch.nn.ReLU",
        "torch.nn.modules.activation.ReLU",
        "torch.nn.SiLU",
        "torch.nn.modules.activation.SiLU",
    ] = Field(alias="_target_")


LAYER_NORM = NormConfig.model_validate({"_target_": "torch.nn.LayerNorm", "_partial_": True})
GELU = ActivationConfig.model_validate({"_target_": "torch.nn.GELU", "_partial_": True})


class MlpConfig(Part):
    """A projection head; ``norm_fn`` null means none, absent means LayerNorm."""

    target: Literal[
        "stable_worldmodel.wm.lewm.module.MLP", "stable_worldmodel.wm.pldm.module.MLP", "module.MLP"
    ] = Field(alias="_target_")
    input_dim: Width
    hidden_dim: Hidden
    output_dim: Width | None = None
    norm_fn: NormConfig | None = LAYER_NORM
    act_fn: ActivationConfig = GELU


class IdentityConfig(Part):
    """No projection head."""

    target: Literal["torch.nn.Identity", "torch.nn.modules.linear.Identity"] = Field(
        alias="_target_"
    )


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

    target: Literal[tuple(FAMILY_OF_TARGET)] = Field(alias="_target_")  # type: ignore[valid-type]
    encoder: EncoderConfig
    predictor: PredictorConfig
    action_encoder: EmbedderConfig
    projector: HeadConfig | None = None
    pred_proj: HeadConfig | None = None
    embed_dim: int | None = None
    history_size: int | None = None


def read_config(data: bytes, filename: str = CONFIG_NAME) -> JsonObject:
    """Parse the bytes of ``config.json``, or of another such file, as plain data.

    Raises:
        UnsafeCheckpoint: Not UTF-8 JSON, not an object, a key written twice, NaN or infinity, or
            nested deeper than ``MAX_DEPTH``.
    """
    try:
        tree = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant
        )
    except RecursionError:
        raise bad_config("", f"nested deeper than {MAX_DEPTH} levels", filename) from None
    except ValueError as error:
        raise bad_config("", f"not valid JSON: {error}", filename) from None
    if not isinstance(tree, dict):
        raise bad_config("", f"a JSON object is wanted, found {type(tree).__name__}", filename)
    _check_depth(tree, 1)
    return tree


def parse_config(
    kind: type[Config], tree: JsonObject, below: str = "", *, filename: str = CONFIG_NAME
) -> Config:
    """Match a config tree against a closed set of targets and arguments.

    ``below`` is the path of the tree in its file.

    Raises:
        UnsafeCheckpoint: An unknown target, or an unknown, missing or ill-typed key; the message
            names the key's path.
    """
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
    # An unknown target explains every other complaint about the same node.
    first = min(details, key=lambda item: not _path(item).endswith("_target_"))
    path = ".".join(filter(None, (below, _path(first))))
    raise bad_config(path, _explain(first), filename)


def bad_config(path: str, problem: str, filename: str = CONFIG_NAME) -> UnsafeCheckpoint:
    """The error for the key at ``path``, or for the whole file when that is empty."""
    where = f"{filename}: {path}: " if path else f"{filename}: "
    return UnsafeCheckpoint(where + problem, reason="CHECKPOINT_CONFIG_REFUSED")


def _explain(detail: ErrorDetails) -> str:
    value = repr(detail["input"])
    found = value if len(value) <= 80 else value[:77] + "..."
    if detail["type"] == "missing":
        return "required, but absent"
    if detail["type"] == "extra_forbidden":
        return f"unknown key (value {found}); the server builds only what it knows"
    if _path(detail).endswith("_target_"):
        known = str(detail.get("ctx", {}).get("expected", ""))
        return f"{found} is not a known target, and nothing was imported or run; known: {known}"
    return f"{detail['msg']}, found {found}"


def _path(detail: ErrorDetails) -> str:
    return ".".join(str(step) for step in detail["loc"] if not str(step).startswith("<"))


def _unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is written twice")
    return tree


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _check_depth(value: object, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise bad_config("", f"nested deeper than {MAX_DEPTH} levels")
    children = value.values() if isinstance(value, dict) else value
    if isinstance(children, Iterable) and not isinstance(children, str):
        for child in children:
            _check_depth(child, depth + 1)
