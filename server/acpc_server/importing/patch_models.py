"""The numbers of a patch model, and its config: dino_wm's ``model_N.pth``, PreJEPA's objects.

dino_wm keeps a dict of modules, and of a frozen backbone nothing: its weights, read here too, are a
file of their own. What it calls ``{action,proprio}_encoder`` are PreJEPA's slots.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from acpc_server.errors import InvalidArgument, UnsafeCheckpoint
from acpc_server.importing.facts import (
    TENSORS,
    Kind,
    Numbers,
    as_bytes,
    block_width,
    check_modules,
    count,
    plain_number,
    torch_kind,
)
from acpc_server.importing.reading import FoundModel, RunFile, read_bytes
from acpc_server.importing.run_config import lookup
from acpc_server.models import JsonObject, Node, StateReader, StoredTensor, unsafe
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD

DIM_HEAD = 64  # of every published size
# Names of DINOv2's releases, and those of transformers' Dinov2Model.
BACKBONE_NAMES = (
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^norm\.", "layernorm."),
    (r"^blocks\.(\d+)\.attn\.proj\.", r"encoder.layer.\1.attention.output.dense."),
    (r"^blocks\.(\d+)\.ls([12])\.gamma$", r"encoder.layer.\1.layer_scale\2.lambda1"),
    (r"^blocks\.", "encoder.layer."),
)
QKV = re.compile(r"^blocks\.(\d+)\.attn\.qkv\.(weight|bias)$")
POSITIONS = "embeddings.position_embeddings"
PATCHES = "embeddings.patch_embeddings.projection.weight"
PATCH_BIAS = "embeddings.patch_embeddings.projection.bias"
AXES = {PATCHES: 4, PATCH_BIAS: 1, POSITIONS: 3}
HALF = 0.5  # what dino_wm takes off its pixels, and divides them by


def prepare_backbone(filename: str, stored: Mapping[str, Tensor], side: int) -> dict[str, Tensor]:
    """Make a backbone's tensors those for frames of ``side`` x ``side`` patches.

    The server normalises with ImageNet's statistics; the patch projection is made to undo that.
    Positions are resampled as DINOv2's own code does.
    """
    for name, tensor in stored.items():
        shape = tuple(tensor.shape)
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise unsafe(filename, f"{name}: {tensor.dtype}, not floating point of 16 or 32 bits")
        if QKV.match(name) and (not shape or shape[0] % 3):
            raise unsafe(filename, f"{name}: shape {shape}, not that of queries, keys and values")
    state = renamed(stored)
    for name, ndim in AXES.items():
        if name not in state or state[name].ndim != ndim or not state[name].numel():
            wanted = "a backbone's weights, as DINOv2 publishes them, are wanted"
            raise unsafe(filename, f"no {name} of {ndim} axes; {wanted}")
    weight, bias = state[PATCHES].double(), state[PATCH_BIAS].double()
    if weight.shape[1] != len(IMAGENET_MEAN) or bias.shape != weight.shape[:1]:
        problem = f"patches of shape {tuple(weight.shape)}, bias {tuple(bias.shape)}; RGB is wanted"
        raise unsafe(filename, problem)
    trained = state[POSITIONS].shape[1] - 1
    if trained < 1 or math.isqrt(trained) ** 2 != trained:
        raise unsafe(filename, f"{trained} positions, not a square number of them")
    state[POSITIONS] = resample(state[POSITIONS], side)
    mean, std = (
        torch.tensor(values, dtype=torch.float64)[:, None, None]
        for values in (IMAGENET_MEAN, IMAGENET_STD)
    )
    shift = weight * ((mean - HALF) / HALF)
    state[PATCHES] = (weight * (std / HALF)).float()
    state[PATCH_BIAS] = (bias + shift.sum(dim=(1, 2, 3))).float()
    return state


def resample(positions: Tensor, grid: int) -> Tensor:
    """Positions (1, 1 + n * n, width) for ``grid`` x ``grid`` patches, by DINOv2's own rule.

    Its release adds 0.1 to the wanted side before it divides, which moves the sampled places;
    transformers does not, so its numbers differ.
    """
    side = math.isqrt(positions.shape[1] - 1)
    if side == grid:
        return positions
    square = positions[:, 1:].float().reshape(1, side, side, -1).permute(0, 3, 1, 2)
    scale = (grid + 0.1) / side
    resized = F.interpolate(square, scale_factor=(scale, scale), mode="bicubic")
    return torch.cat([positions[:, :1].float(), resized.flatten(2).transpose(1, 2)], dim=1)


def dinov2(width: int, layers: int, patch: int, side: int) -> JsonObject:
    """The part ``encoder`` of a ``config.json``, for frames of ``side`` x ``side`` patches."""
    shape = {
        "_target_": "transformers.Dinov2Config",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": max(1, width // DIM_HEAD),
        "patch_size": patch,
        "image_size": side * patch,
    }
    return {"_target_": "transformers.Dinov2Model", "config": shape}


def renamed(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under transformers' names."""
    state: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith("mask_token"):
            continue
        new = name
        for old, known in BACKBONE_NAMES:
            new = re.sub(old, known, new)
        parts = {new: tensor}
        if found := QKV.match(name):
            into = f"encoder.layer.{found[1]}.attention.attention.{{}}.{found[2]}".format
            parts = dict(zip(map(into, ("query", "key", "value")), tensor.chunk(3), strict=True))
        if twice := state.keys() & parts.keys():
            raise UnsafeCheckpoint(f"{name}: {min(twice)} is there under two names")
        state |= parts
    return state


State = dict[str, Tensor]
Modules = Mapping[str, Node]
OWN, PLAIN = "backbone.", (int, float, str)
PREJEPA = "stable_worldmodel.wm.prejepa.module"
# Keys of dino_wm's hydra.yaml, and what they say; those that must have one value.
KEYS = {
    "num_hist": "predictor.num_frames", "frameskip": "frameskip",
    "action_emb_dim": "action.emb_dim", "proprio_emb_dim": "proprio.emb_dim",
    **{f"predictor.{key}": f"predictor.{key}" for key in ("depth", "heads", "dim_head", "mlp_dim")},
}  # fmt: skip
ALWAYS = {"concat_dim": 1, "num_action_repeat": 1, "num_proprio_repeat": 1, "num_pred": 1}
UNKNOWN, FAMILIES = "which is not known here", "DINO-WM has"
LAYERS = r"predictor\.transformer\.layers\.\d+"
KINDS = (
    Kind("predictor", r"models\.vit\.ViTPredictor|.*\.prejepa\.module\.CausalPredictor", UNKNOWN),
    Kind(
        r"extra_encoders\.\w+",
        r"models\.proprio\.ProprioceptiveEmbedding|.*\.prejepa\.module\.Embedder",
        UNKNOWN,
    ),
    Kind(
        "backbone",
        r"dinov2\.models\.vision_transformer\.DinoVisionTransformer"
        r"|transformers\.models\.dinov2\.modeling_dinov2\.Dinov2Model",
        UNKNOWN,
    ),
    torch_kind(rf"{LAYERS}\.1\.net\.2", "GELU"),
    torch_kind(r"predictor\..*(norm|net\.0)", "LayerNorm", eps=1e-5),
)
DINOV2_KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "mlp_ratio", "image_size",
    "patch_size", "layer_norm_eps", "hidden_act", "qkv_bias", "use_swiglu_ffn",
)  # fmt: skip
Finish = Callable[[State], State]


def is_patch_model(found: FoundModel | None) -> bool:
    """Whether a file describes a model with slots beside its patches."""
    return found is not None and "extra_encoders" in found.modules


def plan_patches(
    files: Sequence[RunFile], numbers: Numbers, tree: JsonObject, origin: str, backbone: str
) -> tuple[bytes, Finish]:
    """The config of a patch model, and what makes the tensors of a file those to be stored.

    ``numbers`` take what the files, epochs of one model, and the run's config say, of which
    ``origin`` is the name. ``backbone`` is a file with DINOv2's weights, or nothing.

    Raises InvalidArgument: A backbone, or frameskip, is wanted as an option; UnsafeCheckpoint: It
    would be computed otherwise.
    """
    for file in files:
        numbers.filename, found = file.path.name, file.found
        if found is None or not is_patch_model(found):
            raise unsafe(numbers.filename, "another model than the other files of the run")
        known = found.modules
        if "extra_encoders.action" not in known:
            raise unsafe(numbers.filename, "no action_encoder, without which no action is seen")
        check_modules(KINDS, known, numbers.filename)
        _note(numbers, file, found)
    for key, name in KEYS.items():
        numbers.add(name, lookup(tree, key), f"{origin}, {key}")
    for key, wanted in ALWAYS.items():
        if (held := lookup(tree, key)) not in (None, wanted):
            raise unsafe(numbers.filename, f"{origin}: {key} is {held!r:.20}, not {wanted}")
    block_width(numbers)
    encoder, finish = _backbone(known, numbers, backbone, lookup(tree, "encoder.name"))
    keys = ("num_patches", "num_frames", "depth", "heads", "dim_head", "mlp_dim")
    predictor = numbers.part("predictor", ("dim", *keys))
    slots = {
        name: {"_target_": f"{PREJEPA}.Embedder", "emb_dim": numbers.value(f"{name}.emb_dim"),
               "in_chans": numbers.value(_inputs(name))}
        for name in _children(known, "extra_encoders")
    }  # fmt: skip
    config = {
        "_target_": "stable_worldmodel.wm.PreJEPA",
        "history_size": predictor["num_frames"],
        "encoder": encoder,
        "predictor": {"_target_": f"{PREJEPA}.CausalPredictor", **predictor},
        "extra_encoders": {"_target_": "torch.nn.ModuleDict", "modules": slots},
    }
    return as_bytes(config), finish


def _children(known: Modules, path: str) -> list[str]:
    below = (name.removeprefix(f"{path}.") for name in known if name.startswith(f"{path}."))
    return [name for name in below if "." not in name]


def _inputs(slot: str) -> str:
    """The number that says how wide the input of a slot is."""
    return "action_encoder.input_dim" if slot == "action" else "proprio.in_chans"


def _note(numbers: Numbers, file: RunFile, found: FoundModel) -> None:
    """Note what shapes and attributes say."""

    def shape(name: str, *says: str) -> tuple[int, ...]:
        return numbers.shape(found.tensors, name, says, FAMILIES)

    tokens = shape("predictor.pos_embedding", "", "", "predictor.dim")[1]
    first = "predictor.transformer.layers.0"
    inner = shape(f"{first}.0.to_qkv.weight", "", "")[0] // 3
    shape(f"{first}.1.net.1.weight", "predictor.mlp_dim", "")
    depth = count(r"^predictor\.transformer\.layers\.(\d+)\.", found.tensors)
    numbers.add("predictor.depth", depth, TENSORS)
    for path, module in found.modules.items():
        if re.fullmatch(rf"{LAYERS}\.0", path):
            width = numbers.heads(path, module, inner)
            numbers.add("predictor.dim_head", width, "its tensors and heads")
            mask = module.tensors.get("bias", module.hidden.get("bias"))
            if not isinstance(mask, StoredTensor) or mask.shape != (1, 1, tokens, tokens):
                raise unsafe(numbers.filename, f"{path}.bias is no mask of {tokens} tokens")
            row = replace(mask, shape=mask.shape[-1:], strides=mask.strides[-1:])
            seen = file.tensors({"mask": row})["mask"].count_nonzero()
            numbers.add("predictor.num_patches", int(seen), "the object's mask")
    patches = numbers.need("predictor.num_patches", "it has no layers")
    if not patches or tokens % patches or math.isqrt(patches) ** 2 != patches:
        problem = f"{tokens} positions and {patches} patches a frame, not a square number of them"
        raise unsafe(numbers.filename, problem)
    numbers.add("predictor.num_frames", tokens // patches, TENSORS)
    for name in _children(found.modules, "extra_encoders"):
        embedder = f"extra_encoders.{name}.patch_embed.weight"
        if (kernel := shape(embedder, "", "", "")[2]) != 1 or name not in {"action", "proprio"}:
            raise unsafe(numbers.filename, f"a slot {name!r:.40} over {kernel} frames")
        shape(embedder, f"{name}.emb_dim", _inputs(name), "")


def _backbone(
    known: Modules, numbers: Numbers, backbone: str, named: object
) -> tuple[JsonObject, Finish]:
    """The config's part ``encoder``, and what gives the tensors of a file their backbone."""
    filename, held = numbers.filename, known.get("backbone")
    if held is not None and held.kind.startswith("transformers."):
        # The config that a Dinov2Model was made from, which loading checks.
        config = held.attributes.get("config", {})
        plain = {key: config[key] for key in DINOV2_KEYS if isinstance(config.get(key), PLAIN)}
        made = {"_target_": "transformers.Dinov2Config", **plain}
        return {"_target_": "transformers.Dinov2Model", "config": made}, lambda state: state
    side = math.isqrt(numbers.value("predictor.num_patches"))
    if held is not None:

        def finish(state: State) -> State:
            own = {key.removeprefix(OWN): x for key, x in state.items() if key.startswith(OWN)}
            kept = {key: x for key, x in state.items() if not key.startswith(OWN)}
            return kept | _own(prepare_backbone(filename, own, side))

        return _trained(known, numbers, side), finish
    if not backbone:
        what = f"{named!r:.40} by the run's config" if isinstance(named, str) else "a DINOv2"
        raise InvalidArgument(
            "backbone",
            f"{filename}: dino_wm does not save its frozen backbone, {what}; give its weights with "
            "--backbone (dinov2_vits14_pretrain.pth, in torch hub's cache; or as Hugging Face "
            "publishes them)",
        )
    place = Path(backbone)
    stored = StateReader(place.name, read_bytes(place), {}).tensors
    frames = prepare_backbone(place.name, stored, side)
    numbers.add("backbone", place.name, "--backbone")
    width, _, patch, _ = frames[PATCHES].shape
    encoder = dinov2(width, count(r"encoder\.layer\.(\d+)\.", frames), patch, side)
    return encoder, lambda state: state | _own(frames)


def _own(frames: State) -> State:
    return {f"{OWN}{key}": tensor for key, tensor in frames.items()}


def _trained(known: Modules, numbers: Numbers, side: int) -> JsonObject:
    """The config of a DINOv2 that was trained too, and so lies in the file."""
    slots = sum(value for name, (value, _) in numbers.items() if name.endswith(".emb_dim"))
    width = numbers.value("predictor.dim") - slots
    blocks = _children(known, "backbone.blocks")
    attended = (known.get(f"backbone.blocks.{one}.attn") for one in blocks)
    heads = (one and one.attributes.get("num_heads") for one in attended)
    if any(one != width // DIM_HEAD for one in heads):
        raise unsafe(numbers.filename, f"heads of the encoder are not of {DIM_HEAD} coordinates")
    patch = known["backbone"].attributes.get("patch_size")
    patch = plain_number(patch, "encoder.patch_size", numbers.filename)
    return dinov2(width, len(blocks), int(patch), side)
