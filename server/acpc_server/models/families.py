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
from acpc_server.models.backbones import build_backbone, build_encoder, rename_old_layers
from acpc_server.models.config import OPTIONS_NAME, JsonObject, Part, bad_config, parse_config
from acpc_server.models.folder import CheckpointLimits
from acpc_server.models.frozen import FrozenJepa, FrozenPreJepa, ModelCard
from acpc_server.models.jepa import Embedder, Predictor, ProjectionMlp, SlotEmbedder
from acpc_server.models.jepa_model import JepaModel
from acpc_server.models.prejepa import PatchPredictor, PreJepaModel, frame_mask
from acpc_server.models.weights import (
    StateDict,
    StateReader,
    bad_weights,
    canonical,
    count_parameters,
    fill,
)

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
