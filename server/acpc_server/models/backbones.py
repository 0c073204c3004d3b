"""Encoders by config: a vit_hf, a named backbone, or DINOv2 written out."""

from __future__ import annotations

import re

from acpc_server.models.config import JsonObject, bad_config, parse_config
from acpc_server.models.parts import Dinov2Backbone, EncoderConfig, NamedBackbone
from acpc_server.models.vit import ViT
from acpc_server.models.weights import StateDict, bad_weights

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
