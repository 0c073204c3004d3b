"""Finds the numbers that describe a world model in its file, and where each comes from.

Widths and depths follow from the tensors' shapes, attention heads and epsilons from the pickled
object or the run's config. A number with several sources must be the same in all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from acpc_server.errors import InvalidArgument
from acpc_server.importing.world_model import FoundModel, Records
from acpc_server.models import VIT_SIZES, JsonObject, Node, StoredTensor, unsafe

TENSORS, CODE = "its tensors", "the training code, always"
VIT = "stable_pretraining.backbone.utils.vit_hf"
LAYER = r"^encoder\.(?:encoder\.layer|layers|encoder\.layers)\.(\d+)\."
FIRST_MLP = r"^encoder\.(?:encoder\.layer|layers)\.0\.(?:intermediate\.dense|mlp\.fc1)\.weight$"
NORMS = {"BatchNorm1d": "torch.nn.BatchNorm1d", "LayerNorm": "torch.nn.LayerNorm"}
ACTIVATIONS = {"GELU", "ReLU", "SiLU"}
HEADS = ("projector", "pred_proj")
HINT = (
    "give the run's config.yaml with --config (newer runs: checkpoints/<job id>/config.yaml), or, "
    "where that does not say it, an *_object.ckpt of the run"
)
VIT_EPS, NORM_EPS, MODULATION_EPS = 1e-12, 1e-5, 1e-6
# Classes that a model and its parts may have, and what modules within must be.
KNOWN = re.compile(
    r"(?:stable_worldmodel\.wm\.(lewm|pldm)\.(?:(?:lewm|pldm)\.)?(?:LeWM|PLDM)|jepa\.JEPA)"
)
PART = re.compile(
    r"(?:stable_worldmodel\.wm\.(?:lewm|pldm)\.)?module\.(?:AR)?(Predictor|Embedder|MLP)"
)
WANTED = (
    (r"predictor\.transformer\.layers\.\d+\.norm[12]", {"LayerNorm"}, MODULATION_EPS),
    (r"predictor\..*(norm|mlp\.net\.0)", {"LayerNorm"}, NORM_EPS),
    (r"predictor\..*mlp\.net\.2", {"GELU"}, None),
    (r"predictor\..*adaLN_modulation\.0|action_encoder\.embed\.1", {"SiLU"}, None),
    (r"(projector|pred_proj)\.net\.1", {*NORMS, "Identity"}, None),
    (r"(projector|pred_proj)\.net\.2", ACTIVATIONS, None),
)


# What is noted beside numbers.
WORDS = {
    "augmentation", "family", "backbone",
    *(f"{head}.{key}" for head in HEADS for key in ("norm_fn", "act_fn")),
}  # fmt: skip


class Numbers(dict[str, tuple[Any, str]]):
    """Value and origin of each number by its name; a second, other value is an error."""

    def __init__(self, filename: str) -> None:
        super().__init__()
        self.filename = filename

    def add(self, name: str, value: object, origin: str) -> None:
        """Note a number, or check it against what is known; None says nothing."""
        if value is None:
            return
        if name not in WORDS:
            value = plain_number(value, f"{name} by {origin}", self.filename)
            if not name.endswith("eps") and value % 1:
                problem = f"{name} by {origin} is {value}, not a whole number"
                raise unsafe(self.filename, problem)
        known, first = self.setdefault(name, (value, origin))
        if known != value:
            problem = f"{name} is {known!r:.60} by {first}, but {value!r:.60} by {origin}"
            raise unsafe(self.filename, f"{problem}; these are two models")

    def need(self, name: str, hint: str) -> Any:  # noqa: ANN401
        """The value of a number; UnsafeCheckpoint with the hint where nothing says it."""
        if name not in self:
            raise unsafe(self.filename, f"nothing here says {name}; {hint}")
        return self[name][0]


def from_tensors(numbers: Numbers, tensors: Records) -> None:
    """Note what the shapes of tensors say."""

    def shape(name: str, axes: int) -> tuple[int, ...]:
        found = stored.shape if isinstance(stored := tensors.get(name), StoredTensor) else ()
        if len(found) != axes or not all(found):
            held = ", ".join(sorted({key.partition(".")[0] for key in tensors})[:8])
            problem = f"no tensor {name} of {axes} axes, as LeWM and PLDM have"
            raise unsafe(numbers.filename, f"{problem}; found: {held:.200}")
        return found

    def note(name: str, value: int) -> None:
        numbers.add(name, value, TENSORS)

    width, _, patch, _ = shape("encoder.embeddings.patch_embeddings.projection.weight", 4)
    note("encoder.hidden_size", width)
    note("encoder.patch_size", patch)
    note("encoder.num_hidden_layers", count(LAYER, tensors))
    first = next(
        (name for name in tensors if re.match(FIRST_MLP, name)), "encoder.layers.0.mlp.fc1"
    )
    note("encoder.intermediate_size", shape(first, 2)[0])
    _, frames, dim = shape("predictor.pos_embedding", 3)
    hidden = shape("predictor.transformer.norm.weight", 1)[0]
    note("predictor.num_frames", frames)
    note("predictor.input_dim", dim)
    note("predictor.hidden_dim", hidden)
    last = "predictor.transformer.output_proj.weight"
    note("predictor.output_dim", shape(last, 2)[0] if last in tensors else hidden)
    note("predictor.depth", count(r"^predictor\.transformer\.layers\.(\d+)\.", tensors))
    note("predictor.mlp_dim", shape("predictor.transformer.layers.0.mlp.net.1.weight", 2)[0])
    note(
        "predictor.inner_dim", shape("predictor.transformer.layers.0.attn.to_qkv.weight", 2)[0] // 3
    )
    smoothed, block, _ = shape("action_encoder.patch_embed.weight", 3)
    note("action_encoder.input_dim", block)
    note("action_encoder.smoothed_dim", smoothed)
    emb, inner = shape("action_encoder.embed.2.weight", 2)
    note("action_encoder.emb_dim", emb)
    note("action_encoder.mlp_scale", inner // emb)
    for head in HEADS:
        if any(name.startswith(f"{head}.") for name in tensors):
            rows, columns = shape(f"{head}.net.0.weight", 2)
            note(f"{head}.input_dim", columns)
            note(f"{head}.hidden_dim", rows)
            note(f"{head}.output_dim", shape(f"{head}.net.3.weight", 2)[0])
            batch, plain = (f"{head}.net.1.{key}" in tensors for key in ("running_mean", "weight"))
            norm = "BatchNorm1d" if batch else "LayerNorm" if plain else "Identity"
            numbers.add(f"{head}.norm_fn", norm, TENSORS)


def check_classes(parts: Mapping[str, Node], name: str) -> None:
    """Raise UnsafeCheckpoint for a pickled model whose class, or a part's, is not a known one."""
    if not KNOWN.fullmatch(parts[""].kind):
        raise unsafe(name, f"a {parts[''].kind!r:.100}, which is none of LeWM's and PLDM's classes")
    for key, wanted in (("predictor", "Predictor"), ("action_encoder", "Embedder")):
        _check_part(parts[key], key, wanted, name)
    for head in HEADS:
        if head in parts and not parts[head].kind.endswith(".Identity"):
            _check_part(parts[head], head, "MLP", name)
    if not parts["encoder"].kind.endswith(".ViTModel"):
        raise unsafe(name, f"encoder is a {parts['encoder'].kind!r:.100}, not a ViTModel")


def from_object(numbers: Numbers, parts: Mapping[str, Node]) -> None:
    """Note what a pickled model's attributes say; UnsafeCheckpoint where it computes otherwise."""
    origin, name = "the object", numbers.filename
    config = parts["encoder"].attributes.get("config", {})
    if config.get("hidden_act") != "gelu":
        raise unsafe(
            name, f"encoder.config.hidden_act is {config.get('hidden_act')!r:.40}, not 'gelu'"
        )
    for key in ("num_attention_heads", "image_size", "patch_size", "hidden_size",
                "num_hidden_layers", "intermediate_size", "layer_norm_eps"):  # fmt: skip
        held = plain_number(config.get(key), f"encoder.config.{key}", name)
        numbers.add(f"encoder.{key}", held, origin)
    for path, module in parts.items():
        _check_module(numbers, path, module)
        if path.endswith(".attn") and path.startswith("predictor."):
            heads, scale = (module.attributes.get(key) for key in ("heads", "scale"))
            numbers.add("predictor.heads", plain_number(heads, f"{path}.heads", name), origin)
            width = numbers["predictor.inner_dim"][0] // max(1, numbers["predictor.heads"][0])
            if not isinstance(scale, float) or not abs(scale * width**0.5 - 1) <= 1e-6:
                raise unsafe(name, f"{path}.scale is {scale!r:.40}, not {width} ** -0.5")
        if re.fullmatch(WANTED[4][0], path):
            numbers.add(f"{path.partition('.')[0]}.norm_fn", module.kind.rpartition(".")[2], origin)
            numbers.add(f"{path.partition('.')[0]}.eps", module.attributes.get("eps"), origin)
        if re.fullmatch(WANTED[5][0], path):
            numbers.add(f"{path.partition('.')[0]}.act_fn", module.kind.rpartition(".")[2], origin)


def family_of(found: FoundModel) -> str:
    """The family that a file tells: its class, or what training keeps beside it; else nothing."""
    if found.modules and (named := KNOWN.fullmatch(found.modules[""].kind)) and named[1]:
        return named[1]
    return next(
        (name for key, name in (("idm", "pldm"), ("sigreg", "lewm")) if key in found.beside), ""
    )


def as_config(numbers: Numbers, family: str, *, mask_token: bool) -> JsonObject:
    """The tree of ``config.json``; UnsafeCheckpoint where a number is missing."""
    module = f"stable_worldmodel.wm.{family}.module"
    heads, inner = numbers.need("predictor.heads", HINT), numbers["predictor.inner_dim"][0]
    if inner % heads:
        problem = f"{heads} heads do not divide the predictor's {inner} channels"
        raise unsafe(numbers.filename, problem)
    numbers.add("predictor.dim_head", inner // heads, "its tensors and heads")
    predictor = ("num_frames", "input_dim", "hidden_dim", "output_dim", "depth", "heads",
                 "dim_head", "mlp_dim")  # fmt: skip
    embedder = ("input_dim", "smoothed_dim", "emb_dim", "mlp_scale")
    encoder = {"_target_": VIT, **_encoder(numbers), "pretrained": False}
    tree: JsonObject = {
        "_target_": f"stable_worldmodel.wm.{family}.{'PLDM' if family == 'pldm' else 'LeWM'}",
        "encoder": {**encoder, "use_mask_token": mask_token},
        "predictor": {
            "_target_": f"{module}.Predictor",
            **{key: numbers[f"predictor.{key}"][0] for key in predictor},
        },
        "action_encoder": {
            "_target_": f"{module}.Embedder",
            **{key: numbers[f"action_encoder.{key}"][0] for key in embedder},
        },
    }
    for head in HEADS:
        if f"{head}.input_dim" in numbers:
            tree[head] = {"_target_": f"{module}.MLP", **_head(numbers, head)}
    return tree


def as_bytes(config: JsonObject) -> bytes:
    """A config as ``config.json`` holds it."""
    return json.dumps(config, indent=2).encode() + b"\n"


def _encoder(numbers: Numbers) -> JsonObject:
    """Size by its name, where it is one, and what else differs from that size."""
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    width, depth, heads, hidden = (numbers.need(f"encoder.{key}", HINT) for key in keys)
    known = numbers.get("encoder.layer_norm_eps", (VIT_EPS,))[0]
    numbers.add("encoder.layer_norm_eps", known, CODE)
    named = (size for size, shape in VIT_SIZES.items() if shape == (width, depth, heads))
    size = next(named, "") if hidden == 4 * width else ""
    given = zip(keys, (width, depth, heads, hidden), strict=True)
    return {
        **({"size": size} if size else dict(given)),
        "patch_size": numbers["encoder.patch_size"][0],
        "image_size": numbers.need("encoder.image_size", HINT),
        **({} if known == VIT_EPS else {"layer_norm_eps": known}),
    }


def _head(numbers: Numbers, head: str) -> JsonObject:
    """A projection head's widths, and its normalisation and activation where they differ."""
    for key, usual in (("eps", NORM_EPS), ("act_fn", "GELU")):
        numbers.add(f"{head}.{key}", numbers.get(f"{head}.{key}", (usual,))[0], CODE)
    norm, eps, act = (numbers[f"{head}.{key}"][0] for key in ("norm_fn", "eps", "act_fn"))
    factory: JsonObject = {"_target_": NORMS.get(norm), "_partial_": True}
    if eps != NORM_EPS:
        factory["eps"] = eps
    made = {key: numbers[f"{head}.{key}"][0] for key in ("input_dim", "output_dim", "hidden_dim")}
    made["norm_fn"] = factory if norm in NORMS else None
    if act != "GELU":
        made["act_fn"] = {"_target_": f"torch.nn.{act}", "_partial_": True}
    return made


def block_width(numbers: Numbers) -> None:
    """Make frameskip and action_dim known, each from the other and the width of action blocks.

    Raises InvalidArgument: Neither is known; asks for one by its option; UnsafeCheckpoint: They do
    not make the width.
    """
    width = numbers["action_encoder.input_dim"][0]
    known = {key: numbers[key][0] for key in ("frameskip", "action_dim") if key in numbers}
    if not known:
        raise InvalidArgument(
            "frameskip",
            f"{numbers.filename}: action blocks are {width} wide, frameskip x action_dim, and "
            "neither the object nor a config says which; give --frameskip or --action-dim, as in "
            "training",
        )
    for key, other in (("frameskip", "action_dim"), ("action_dim", "frameskip")):
        if key not in known:
            if width % known[other]:
                problem = f"{other} {known[other]} does not divide action blocks {width} wide"
                raise unsafe(numbers.filename, problem)
            numbers.add(key, width // known[other], f"{width} / {other}")
    skip, dim = numbers["frameskip"][0], numbers["action_dim"][0]
    if skip * dim != width:
        problem = f"frameskip {skip} x action_dim {dim} makes {skip * dim}, but action blocks are"
        origins = f"({numbers['frameskip'][1]}, {numbers['action_dim'][1]})"
        raise unsafe(numbers.filename, f"{problem} {width} wide {origins}")


def _check_part(module: Node, path: str, wanted: str, filename: str) -> None:
    found = PART.fullmatch(module.kind)
    if found is None or found[1] != wanted:
        raise unsafe(
            filename, f"{path} is a {module.kind!r:.100}, not a {wanted} that is known here"
        )


def _check_module(numbers: Numbers, path: str, module: Node) -> None:
    """Check class, epsilon and approximation of a module that has arithmetic of its own."""
    kind, eps = module.kind.rpartition(".")[2], module.attributes.get("eps")
    if path.startswith("encoder.") and kind == "LayerNorm":
        numbers.add("encoder.layer_norm_eps", eps, f"the object, {path}")
    approximate = module.attributes.get("approximate", "none")
    if kind == "GELU" and approximate != "none":
        raise unsafe(numbers.filename, f"{path} is a GELU approximated by {approximate!r:.20}")
    for pattern, kinds, wanted in WANTED:
        if re.fullmatch(pattern, path):
            if kind not in kinds or not module.kind.startswith("torch.nn."):
                problem = f"{path} is a {module.kind!r:.80}, not one of {', '.join(sorted(kinds))}"
                raise unsafe(numbers.filename, problem)
            if wanted is not None and eps != wanted:
                raise unsafe(numbers.filename, f"{path}.eps is {eps!r:.40}, not {wanted}")
            return


def plain_number(value: object, name: str, filename: str) -> float | int:
    """A positive number, also as two equal sides; UnsafeCheckpoint for anything else."""
    if isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 31:
        raise unsafe(filename, f"{name} is {value!r:.40}, not a positive number")
    return value


def count(pattern: str, tensors: Mapping[str, object]) -> int:
    """Count the layers whose names begin so."""
    return len({found[1] for name in tensors if (found := re.match(pattern, name))})
