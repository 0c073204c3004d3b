"""The numbers of LeWM and PLDM, and their config."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import TypeVar

from acpc_server.importing.facts import (
    CODE,
    HEADS,
    OBJECT,
    TENSORS,
    Kind,
    Numbers,
    as_bytes,
    check_modules,
    count,
    plain_number,
    torch_kind,
)
from acpc_server.importing.reading import Records
from acpc_server.models import FAMILY_OF_TARGET, VIT_SIZES, JsonObject, Node, unsafe

T = TypeVar("T")
VIT = "stable_pretraining.backbone.utils.vit_hf"
VIT_EPS, NORM_EPS = 1e-12, 1e-5
HINT = (
    "give the run's config.yaml with --config (newer runs: checkpoints/<job id>/config.yaml), or, "
    "where that does not say it, an *_object.ckpt of the run"
)
# The numbers that a config has, by its parts.
KEYS = {
    "encoder": ("image_size", "patch_size", "hidden_size", "num_hidden_layers",
                "num_attention_heads", "intermediate_size", "layer_norm_eps"),
    "predictor": ("num_frames", "input_dim", "hidden_dim", "output_dim", "depth", "heads",
                  "dim_head", "mlp_dim"),
    "action_encoder": ("input_dim", "smoothed_dim", "emb_dim", "mlp_scale"),
    **{head: ("input_dim", "output_dim", "hidden_dim") for head in HEADS},
}  # fmt: skip
# What the axes of tensors say.
LAYER_0 = "predictor.transformer.layers.0"
SHAPES = {
    "encoder.embeddings.patch_embeddings.projection.weight":
        ("encoder.hidden_size", "", "encoder.patch_size", ""),
    "predictor.pos_embedding": ("", "predictor.num_frames", "predictor.input_dim"),
    "predictor.transformer.norm.weight": ("predictor.hidden_dim",),
    f"{LAYER_0}.mlp.net.1.weight": ("predictor.mlp_dim", ""),
    "action_encoder.patch_embed.weight":
        ("action_encoder.smoothed_dim", "action_encoder.input_dim", ""),
}  # fmt: skip
LAYER = r"^encoder\.(?:encoder\.layer|layers|encoder\.layers)\.(\d+)\."
FIRST_MLP = r"^encoder\.(?:encoder\.layer|layers)\.0\.(?:intermediate\.dense|mlp\.fc1)\.weight$"
OUTPUT = "predictor.transformer.output_proj.weight"
FAMILIES = "LeWM and PLDM have"
NORMS = {"BatchNorm1d": "torch.nn.BatchNorm1d", "LayerNorm": "torch.nn.LayerNorm"}
NORM_PATH, ACT_PATH = r"(projector|pred_proj)\.net\.1", r"(projector|pred_proj)\.net\.2"
PAPER = "jepa.JEPA"  # the class of both families in the paper's code
_MODULE = r"(?:stable_worldmodel\.wm\.(?:lewm|pldm)\.)?module\."
KINDS = (
    Kind(
        "", "|".join(map(re.escape, FAMILY_OF_TARGET)), "which is none of LeWM's and PLDM's classes"
    ),
    Kind("predictor", rf"{_MODULE}(AR)?Predictor", "not a Predictor that is known here"),
    Kind("action_encoder", rf"{_MODULE}(AR)?Embedder", "not a Embedder that is known here"),
    Kind("projector|pred_proj", rf"{_MODULE}(AR)?MLP|.*\.Identity", "not a MLP that is known here"),
    Kind("encoder", r".*\.ViTModel", "not a ViTModel"),
    torch_kind(r"predictor\.transformer\.layers\.\d+\.norm[12]", "LayerNorm", eps=1e-6),
    torch_kind(r"predictor\..*(norm|mlp\.net\.0)", "LayerNorm", eps=NORM_EPS),
    torch_kind(r"predictor\..*mlp\.net\.2", "GELU"),
    torch_kind(r"predictor\..*adaLN_modulation\.0|action_encoder\.embed\.1", "SiLU"),
    torch_kind(NORM_PATH, "BatchNorm1d", "Identity", "LayerNorm"),
    torch_kind(ACT_PATH, "GELU", "ReLU", "SiLU"),
)


def model_tensors(tensors: Mapping[str, T]) -> dict[str, T]:
    """Those of the parts that predict; what a training model holds besides is left out."""
    parts = tuple(f"{part}." for part in KEYS)
    return {name: tensor for name, tensor in tensors.items() if name.startswith(parts)}


def note_model(numbers: Numbers, tensors: Records, modules: Mapping[str, Node]) -> None:
    """Note what the parts that predict say, and their modules where there are any.

    Raises UnsafeCheckpoint: It is no such model, or computes otherwise.
    """
    check_modules(KINDS, modules, numbers.filename)
    _from_tensors(numbers, tensors)
    if modules:
        _from_object(numbers, modules)


def _from_tensors(numbers: Numbers, tensors: Records) -> None:
    def shape(name: str, *says: str) -> tuple[int, ...]:
        return numbers.shape(tensors, name, says, FAMILIES)

    for name, says in SHAPES.items():
        shape(name, *says)
    first = next((name for name in tensors if re.match(FIRST_MLP, name)), "")
    shape(first or "encoder.layers.0.mlp.fc1", "encoder.intermediate_size", "")
    hidden = shape("predictor.transformer.norm.weight", "")[0]
    counted = {
        "encoder.num_hidden_layers": count(LAYER, tensors),
        "predictor.output_dim": shape(OUTPUT, "", "")[0] if OUTPUT in tensors else hidden,
        "predictor.depth": count(r"^predictor\.transformer\.layers\.(\d+)\.", tensors),
        "predictor.inner_dim": shape(f"{LAYER_0}.attn.to_qkv.weight", "", "")[0] // 3,
    }
    emb, inner = shape("action_encoder.embed.2.weight", "action_encoder.emb_dim", "")
    counted["action_encoder.mlp_scale"] = inner // emb
    for name, value in counted.items():
        numbers.add(name, value, TENSORS)
    for head in HEADS:
        if any(name.startswith(f"{head}.") for name in tensors):
            shape(f"{head}.net.0.weight", f"{head}.hidden_dim", f"{head}.input_dim")
            shape(f"{head}.net.3.weight", f"{head}.output_dim", "")
            batch, plain = (f"{head}.net.1.{key}" in tensors for key in ("running_mean", "weight"))
            norm = "BatchNorm1d" if batch else "LayerNorm" if plain else "Identity"
            numbers.add(f"{head}.norm_fn", norm, TENSORS)


def _from_object(numbers: Numbers, modules: Mapping[str, Node]) -> None:
    name, config = numbers.filename, modules["encoder"].attributes.get("config", {})
    if config.get("hidden_act") != "gelu":
        raise unsafe(
            name, f"encoder.config.hidden_act is {config.get('hidden_act')!r:.40}, not 'gelu'"
        )
    for key in KEYS["encoder"]:
        held = plain_number(config.get(key), f"encoder.config.{key}", name)
        numbers.add(f"encoder.{key}", held, OBJECT)
    for path, module in modules.items():
        part, kind, eps = path.partition(".")[0], module.kind, module.attributes.get("eps")
        if part == "encoder" and kind.endswith(".LayerNorm"):
            numbers.add("encoder.layer_norm_eps", eps, f"{OBJECT}, {path}")
        if part == "predictor" and path.endswith(".attn"):
            numbers.heads(path, module, numbers.value("predictor.inner_dim"))
        if re.fullmatch(NORM_PATH, path):
            numbers.add(f"{part}.norm_fn", kind.rpartition(".")[2], OBJECT)
            numbers.add(f"{part}.eps", eps, OBJECT)
        if re.fullmatch(ACT_PATH, path):
            numbers.add(f"{part}.act_fn", kind.rpartition(".")[2], OBJECT)


def family_of(modules: Mapping[str, Node], beside: Container[str]) -> str:
    """The family by a model's class, or what training keeps ``beside`` it; else nothing."""
    kind = modules[""].kind if modules else PAPER
    if kind != PAPER:
        return FAMILY_OF_TARGET[kind]
    return "pldm" if "idm" in beside else "lewm" if "sigreg" in beside else ""


def as_config(numbers: Numbers, family: str, tensors: Records) -> bytes:
    """The bytes of ``config.json``; UnsafeCheckpoint where a number is missing."""
    module = f"stable_worldmodel.wm.{family}.module"
    heads, inner = numbers.need("predictor.heads", HINT), numbers.value("predictor.inner_dim")
    if inner % heads:
        problem = f"{heads} heads do not divide the predictor's {inner} channels"
        raise unsafe(numbers.filename, problem)
    numbers.add("predictor.dim_head", inner // heads, "its tensors and heads")
    masked = "encoder.embeddings.mask_token" in tensors
    tree: JsonObject = {
        "_target_": f"stable_worldmodel.wm.{family}.{'PLDM' if family == 'pldm' else 'LeWM'}",
        "encoder": _encoder(numbers) | {"pretrained": False, "use_mask_token": masked},
    }
    for part, kind in (("predictor", "Predictor"), ("action_encoder", "Embedder")):
        tree[part] = {"_target_": f"{module}.{kind}", **numbers.part(part, KEYS[part])}
    for head in HEADS:
        if f"{head}.input_dim" in numbers:
            tree[head] = {"_target_": f"{module}.MLP", **_head(numbers, head)}
    return as_bytes(tree)


def _encoder(numbers: Numbers) -> JsonObject:
    """Size by its name, where it is one, and what else differs from that size."""
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    width, depth, heads, hidden = (numbers.need(f"encoder.{key}", HINT) for key in keys)
    known = numbers.get("encoder.layer_norm_eps", (VIT_EPS,))[0]
    numbers.add("encoder.layer_norm_eps", known, CODE)
    named = (size for size, shape in VIT_SIZES.items() if shape == (width, depth, heads))
    size = next(named, "") if hidden == 4 * width else ""
    return {
        "_target_": VIT,
        **({"size": size} if size else numbers.part("encoder", keys)),
        "patch_size": numbers.value("encoder.patch_size"),
        "image_size": numbers.need("encoder.image_size", HINT),
        **({} if known == VIT_EPS else {"layer_norm_eps": known}),
    }


def _head(numbers: Numbers, head: str) -> JsonObject:
    """A projection head's widths, and its normalisation and activation where they differ."""
    for key, usual in (("eps", NORM_EPS), ("act_fn", "GELU")):
        numbers.add(f"{head}.{key}", numbers.get(f"{head}.{key}", (usual,))[0], CODE)
    norm, eps, act = (numbers.value(f"{head}.{key}") for key in ("norm_fn", "eps", "act_fn"))
    factory: JsonObject = {"_target_": NORMS.get(norm), "_partial_": True}
    if eps != NORM_EPS:
        factory["eps"] = eps
    made = numbers.part(head, KEYS[head])
    made["norm_fn"] = factory if norm in NORMS else None
    if act != "GELU":
        made["act_fn"] = {"_target_": f"torch.nn.{act}", "_partial_": True}
    return made
