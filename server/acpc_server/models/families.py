"""The families that the server knows: config to network, stored names to ours."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from acpc_server.models import parts
from acpc_server.models.config import OPTIONS_NAME, JsonObject, Part, bad_config, parse_config
from acpc_server.models.folder import CheckpointLimits
from acpc_server.models.frozen import FrozenJepa, FrozenPreJepa, ModelCard
from acpc_server.models.jepa import Embedder, Predictor, ProjectionMlp, SlotEmbedder
from acpc_server.models.jepa_model import JepaModel
from acpc_server.models.parts import Dinov2Backbone, EncoderConfig, NamedBackbone
from acpc_server.models.prejepa import PatchPredictor, PreJepaModel, frame_mask
from acpc_server.models.vit import ViT
from acpc_server.models.weights import (
    StateDict,
    StateReader,
    bad_weights,
    canonical,
    count_parameters,
    fill,
)

# Size, patch side, trained image side and whether DINOv2, of what ``create_backbone`` may name.
_NAMED = {
    **{(f"dinov2_{size}", f"facebook/dinov2-{size}"): (size, 14, 518, True)
       for size in ("small", "base", "large")},
    ("dino_vits16", "facebook/dino-vits16"): ("small", 16, 224, False),
    ("dino_vits8", "facebook/dino-vits8"): ("small", 8, 224, False),
    ("dino_vitb16", "facebook/dino-vitb16"): ("base", 16, 224, False),
    ("dino_vitb8", "facebook/dino-vitb8"): ("base", 8, 224, False),
    ("vit_base_patch16", "google/vit-base-patch16-224"): ("base", 16, 224, False),
    ("vit_large_patch16", "google/vit-large-patch16-224"): ("large", 16, 224, False),
}  # fmt: skip
BACKBONES = {name: entry for names, entry in _NAMED.items() for name in names}
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


def build_backbone(node: JsonObject) -> ViT:
    """The backbone that a config names or writes out; UnsafeCheckpoint for an unknown one."""
    target = str(node.get("_target_"))
    if target.endswith(".vit_hf"):
        return build_encoder(parse_config(EncoderConfig, node, "encoder"))
    if target.endswith(".Dinov2Model"):
        keys = parse_config(Dinov2Backbone, node, "encoder").config
        copied = ("hidden_size", "num_hidden_layers", "num_attention_heads", "patch_size",
                  "image_size", "layer_norm_eps")  # fmt: skip
        sizes = {key: getattr(keys, key) for key in copied}
        return _vit(sizes | {"intermediate_size": keys.mlp_ratio * keys.hidden_size}, scaled=True)
    name = parse_config(NamedBackbone, node, "encoder").name
    if name not in BACKBONES:
        raise bad_config(
            "encoder.name",
            f"{name[:80]!r} is not a backbone the server has; nothing was downloaded; known: "
            f"{', '.join(BACKBONES)}, or a transformers.Dinov2Model with its config written out",
        )
    size, patch, side, scaled = BACKBONES[name]
    eps = 1e-6 if scaled else 1e-12
    sizes = {"size": size, "patch_size": patch, "image_size": side, "layer_norm_eps": eps}
    return _vit(sizes, scaled=scaled)


def _vit(sizes: JsonObject, *, scaled: bool) -> ViT:
    target = "stable_pretraining.backbone.utils.vit_hf"
    tree = {"_target_": target, "use_mask_token": False, **sizes}
    return build_encoder(parse_config(EncoderConfig, tree, "encoder"), scaled=scaled)


# Of masked-image training and of classification.
UNUSED = frozenset({
    "backbone.embeddings.mask_token", "backbone.pooler.dense.weight", "backbone.pooler.dense.bias"
})  # fmt: skip
# Attributes of modules that change no answer, and tensors.
IDLE_NUMBERS = {"training"}
IDLE_TENSORS = ("mask_token", "num_batches_tracked")
# Of torch's own modules but linear maps, whose other numbers show in shapes or in the module
# around them.
TORCH_NUMBERS = {"eps", "approximate"}
STORED_MASK = re.compile(r"^predictor\.transformer\.layers\.\d+\.0\.bias$")
Config = TypeVar("Config", bound=Part)
Options = TypeVar("Options", bound=Part)
Network = TypeVar("Network", JepaModel, PreJepaModel)


@dataclass(frozen=True)
class Family(Generic[Config, Options, Network]):
    """Builder of the checkpoints of one family.

    Attributes:
        name: Name on the model card.
        targets: Top-level ``_target_`` spellings of its configs.
        config: Declares ``config.json``.
        options: Declares ``acpc.json``.
        network: Builds the network, with fresh weights; raises UnsafeCheckpoint if widths differ.
        facts: The fields of the card that config and network determine.
        frozen: What the server uses the network as.
        used: Of the tensors of a file, those that the network may have; raises UnsafeCheckpoint.
    """

    name: str
    targets: AbstractSet[str]
    config: type[Config]
    options: type[Options]
    network: Callable[[Config, Options], Network]
    facts: Callable[[Config, Network], Mapping[str, Any]]
    frozen: type[FrozenJepa]
    used: Callable[[StateDict, Network, str], StateDict] = lambda state, *_: state

    def build(
        self,
        config: JsonObject,
        state: StateReader,
        *,
        device: torch.device,
        limits: CheckpointLimits,
    ) -> FrozenJepa:
        """Check the config, then the weights against it, then make the model.

        Raises UnsafeCheckpoint: Any of the checks fails; the message names the key.
        """
        parsed = parse_config(self.config, config)
        options = parse_config(self.options, state.options, filename=OPTIONS_NAME)
        with torch.device("meta"):
            network = self.network(parsed, options)
        count = count_parameters(network, limits)
        tensors = rename_old_layers(state.tensors, state.filename)
        fill(network, self.used(tensors, network, state.filename), state.filename)
        facts = dict(self.facts(parsed, network))
        digest = state.digest
        if order := facts.pop("order", ""):  # a config's digest has none, where it matters
            digest = hashlib.sha256(f"{digest}:{order}".encode()).hexdigest()
        facts |= {"digest": digest, "model_digest": digest_network(network)}
        facts["weights_read"] = state.read
        card = ModelCard(family=self.name, parameter_count=count, **facts)
        return self.frozen(network, card, device)


def digest_network(network: nn.Module) -> str:
    """Hex sha256 over what a filled network computes with, however its files spell it.

    Covers each module's name and numbers (heads, eps) and each tensor's name, shape and float32
    values, under the names of this package.
    """
    sha = hashlib.sha256()
    for name, module in network.named_modules():
        own = type(module).__module__.startswith(__package__) or type(module) is nn.Linear
        numbers = {
            key: value
            for key, value in vars(module).items()
            if isinstance(value, int | float | str)
            and (key not in IDLE_NUMBERS if own else key in TORCH_NUMBERS)
        }
        sha.update(canonical([name, numbers]))
    for name, tensor in network.state_dict().items():
        if not name.endswith(IDLE_TENSORS):
            sha.update(canonical([name, list(tensor.shape)]))
            sha.update(tensor.contiguous().numpy().data)
    return sha.hexdigest()


def jepa_network(config: parts.JepaConfig) -> JepaModel:
    """The network of LeWM and PLDM, with fresh weights; UnsafeCheckpoint if widths do not fit."""
    encoder = build_encoder(config.encoder)
    predictor, actions = config.predictor, config.action_encoder
    output_dim = predictor.output_dim or predictor.input_dim
    latent_dim = _head_width(config.projector, "projector", encoder.width, "the encoder's width")
    _check_equal("predictor.input_dim", predictor.input_dim, latent_dim, "the latents' width")
    _check_equal("action_encoder.emb_dim", actions.emb_dim, latent_dim, "predictor.input_dim")
    predicted = _head_width(config.pred_proj, "pred_proj", output_dim, "the predictor's output")
    last = "pred_proj.output_dim" if config.pred_proj else "predictor.output_dim"
    _check_equal(last, predicted, latent_dim, "the latents' width")
    heads = [
        ProjectionMlp(head) if isinstance(head, parts.MlpConfig) else nn.Identity()
        for head in (config.projector, config.pred_proj)
    ]
    return JepaModel(encoder, Predictor(predictor), Embedder(actions), *heads)


def _head_width(
    head: parts.MlpConfig | parts.IdentityConfig | None, name: str, entering: int, source: str
) -> int:
    if not isinstance(head, parts.MlpConfig):
        return entering
    _check_equal(f"{name}.input_dim", head.input_dim, entering, source)
    return head.output_dim or head.input_dim


def _check_equal(key: str, found: int, wanted: int, source: str) -> None:
    if found != wanted:
        raise bad_config(key, f"{found}, but {source} is {wanted}")


def _jepa_facts(config: parts.JepaConfig, _: JepaModel) -> dict[str, int]:
    return {
        "image_size": config.encoder.image_size,
        "latent_dim": config.predictor.input_dim,
        "history": config.predictor.num_frames,
        "action_block_dim": config.action_encoder.input_dim,
    }


def _prejepa_network(config: parts.PreJepaConfig, options: parts.PreJepaOptions) -> PreJepaModel:
    backbone, predictor = build_backbone(config.encoder), config.predictor
    slots, frames = config.extra_encoders.modules, predictor.num_frames
    if parts.ACTION not in slots:
        problem = "no action slot, without which no action is seen"
        raise bad_config("extra_encoders.modules", problem)
    width = backbone.width + sum(slot.emb_dim for slot in slots.values())
    terms = " + ".join(f"{key} {slot.emb_dim}" for key, slot in slots.items())
    source = f"the backbone's width {backbone.width} + {terms}"
    _check_equal("predictor.dim", predictor.dim, width, source)
    patches = predictor.num_patches
    if math.isqrt(patches) ** 2 != patches:
        raise bad_config("predictor.num_patches", f"{patches} is no square number of patches")
    if config.history_size > frames:
        held = f"the predictor has positions for predictor.num_frames = {frames} frames"
        raise bad_config("history_size", f"{config.history_size}, but {held}")
    embedders = {str(key): SlotEmbedder(slot.in_chans, slot.emb_dim) for key, slot in slots.items()}
    return PreJepaModel(
        backbone, PatchPredictor(predictor), embedders, config.history_size, options
    )


def _prejepa_facts(config: parts.PreJepaConfig, network: PreJepaModel) -> dict[str, Any]:
    slots = config.extra_encoders.modules
    return {
        "order": ",".join(slots),
        "image_size": math.isqrt(network.patches) * network.backbone.patch_size,
        "action_block_dim": slots[parts.ACTION].in_chans,
        "proprio_dim": slots[parts.PROPRIO].in_chans if parts.PROPRIO in slots else 0,
        "latent_dim": network.visual + network.proprio,
        "history": network.history,
        "latent_tokens": network.patches,
    }


def _prejepa_tensors(state: StateDict, network: PreJepaModel, filename: str) -> StateDict:
    """Leave out what inference has no use for; raises for a mask that is not the one in use."""
    predictor, masks = network.predictor, [name for name in state if STORED_MASK.match(name)]
    side = predictor.pos_embedding.shape[1]
    for name in masks:
        found, wanted = tuple(state[name].shape), (1, 1, side, side)
        if found != wanted:
            raise bad_weights(filename, name, f"shape {found}, but the config wants {wanted}")
        causal = frame_mask(side // predictor.patches, predictor.patches, state[name].device)
        if not torch.equal(state[name][0, 0] == 1, causal):
            raise bad_weights(filename, name, "an attention mask that is not causal between frames")
    unused = {*masks, *(UNUSED - network.state_dict().keys())}
    return {name: tensor for name, tensor in state.items() if name not in unused}


FAMILIES: tuple[Family[Any, Any, Any], ...] = (
    *(
        Family(
            name, {target for target, family in parts.FAMILY_OF_TARGET.items() if family == name},
            parts.JepaConfig, Part, lambda config, _: jepa_network(config), _jepa_facts, FrozenJepa,
        )
        for name in ("lewm", "pldm")
    ),
    Family(
        "prejepa", frozenset(parts.PREJEPA_TARGETS), parts.PreJepaConfig, parts.PreJepaOptions,
        _prejepa_network, _prejepa_facts, FrozenPreJepa, _prejepa_tensors,
    ),
)  # fmt: skip
