"""The numbers of a patch model, and its config: dino_wm's ``model_N.pth``, PreJEPA's objects.

dino_wm keeps a dict of modules, and of a frozen backbone nothing: its weights are a file of their
own. What it calls ``{action,proprio}_encoder`` are PreJEPA's slots.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.importing.backbones import DIM_HEAD, encoder_config, prepare_backbone
from acpc_server.importing.facts import (
    TENSORS,
    Numbers,
    as_bytes,
    block_width,
    count,
    plain_number,
)
from acpc_server.importing.reading import RunFile, read_bytes
from acpc_server.importing.run_config import lookup
from acpc_server.models import JsonObject, Node, StateReader, StoredTensor, unsafe

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
CLASSES = (
    (r"predictor", r"(models\.vit\.ViTPredictor|.*\.prejepa\.module\.CausalPredictor)"),
    (r"extra_encoders\.\w+",
     r"(models\.proprio\.ProprioceptiveEmbedding|.*\.prejepa\.module\.Embedder)"),
    (r"backbone", r"(dinov2\.models\.vision_transformer\.DinoVisionTransformer"
                  r"|transformers\.models\.dinov2\.modeling_dinov2\.Dinov2Model)"),
    (r"predictor\.transformer\.layers\.\d+\.1\.net\.2", r"torch\.nn\.modules\.activation\.GELU"),
    (r"predictor\..*(norm|net\.0)", r"torch\.nn\.modules\.normalization\.LayerNorm"),
)  # fmt: skip
DINOV2_KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "mlp_ratio", "image_size",
    "patch_size", "layer_norm_eps", "hidden_act", "qkv_bias", "use_swiglu_ffn",
)  # fmt: skip
Finish = Callable[[State], State]


def is_patch_model(file: RunFile) -> bool:
    """Whether a file describes a model with slots beside its patches."""
    return file.found is not None and "extra_encoders" in file.found.modules


def plan_patches(
    files: Sequence[RunFile], numbers: Numbers, tree: JsonObject, origin: str, backbone: str
) -> tuple[bytes, Finish]:
    """The config of a patch model, and what makes the tensors of a file those to be stored.

    Args:
        files: Epochs of one.
        numbers: Takes what they say.
        tree: The run's config, or nothing.
        origin: The config's name.
        backbone: A file with DINOv2's weights, or nothing.

    Raises InvalidArgument: A backbone, or frameskip, is wanted as an option; UnsafeCheckpoint: It
    would be computed otherwise.
    """
    for file in files:
        numbers.filename, found = file.path.name, file.found
        if found is None or not is_patch_model(file):
            raise unsafe(numbers.filename, "another model than the other files of the run")
        known = found.modules
        _check_classes(known, numbers.filename)
        _note(numbers, known, file)
    for key, name in KEYS.items():
        numbers.add(name, lookup(tree, key), f"{origin}, {key}")
    for key, wanted in ALWAYS.items():
        if (held := lookup(tree, key)) not in (None, wanted):
            raise unsafe(numbers.filename, f"{origin}: {key} is {held!r:.20}, not {wanted}")
    block_width(numbers)
    encoder, finish = _backbone(known, numbers, backbone, lookup(tree, "encoder.name"))
    dim = numbers["predictor.dim"][0]
    keys = ("num_patches", "num_frames", "depth", "heads", "dim_head", "mlp_dim")
    slots = {
        name: {"_target_": f"{PREJEPA}.Embedder", "emb_dim": numbers[f"{name}.emb_dim"][0],
               "in_chans": numbers["action_encoder.input_dim" if name == "action"
                                   else "proprio.in_chans"][0]}
        for name in _children(known, "extra_encoders")
    }  # fmt: skip
    predictor = {key: numbers[f"predictor.{key}"][0] for key in keys}
    config = {
        "_target_": "stable_worldmodel.wm.PreJEPA",
        "history_size": predictor["num_frames"],
        "encoder": encoder,
        "predictor": {"_target_": f"{PREJEPA}.CausalPredictor", "dim": dim, **predictor},
        "extra_encoders": {"_target_": "torch.nn.ModuleDict", "modules": slots},
    }
    return as_bytes(config), finish


def _children(known: Modules, path: str) -> list[str]:
    below = (name.removeprefix(f"{path}.") for name in known if name.startswith(f"{path}."))
    return [name for name in below if "." not in name]


def _check_classes(known: Modules, filename: str) -> None:
    if "extra_encoders.action" not in known:
        raise unsafe(filename, "no action_encoder, without which no action is seen")
    for path, module in known.items():
        for pattern, kinds in CLASSES:
            if re.fullmatch(pattern, path) and not re.fullmatch(kinds, module.kind):
                raise unsafe(filename, f"{path} is a {module.kind!r:.80}, which is not known here")
        eps, approximate = (module.attributes.get(key) for key in ("eps", "approximate"))
        if approximate not in (None, "none"):
            raise unsafe(filename, f"{path} is a GELU approximated by {approximate!r:.20}")
        if path.startswith("predictor.") and eps not in (None, 1e-5):
            raise unsafe(filename, f"{path}.eps is {eps!r:.40}, not 1e-05")


def _note(numbers: Numbers, known: Modules, file: RunFile) -> None:
    """Note what shapes and attributes say."""
    tensors = file.found.tensors if file.found is not None else {}

    def shape(name: str, axes: int) -> tuple[int, ...]:
        stored = tensors.get(name)
        if (
            not isinstance(stored, StoredTensor)
            or len(stored.shape) != axes
            or not all(stored.shape)
        ):
            raise unsafe(numbers.filename, f"no tensor {name} of {axes} axes, as DINO-WM has")
        return stored.shape

    _, tokens, dim = shape("predictor.pos_embedding", 3)
    first = "predictor.transformer.layers.0"
    inner = shape(f"{first}.0.to_qkv.weight", 2)[0] // 3
    numbers.add("predictor.dim", dim, TENSORS)
    numbers.add("predictor.mlp_dim", shape(f"{first}.1.net.1.weight", 2)[0], TENSORS)
    depth = count(r"^predictor\.transformer\.layers\.(\d+)\.", tensors)
    numbers.add("predictor.depth", depth, TENSORS)
    for path, module in known.items():
        if not re.fullmatch(r"predictor\.transformer\.layers\.\d+\.0", path):
            continue
        heads, scale = (module.attributes.get(key) for key in ("heads", "scale"))
        heads = plain_number(heads, f"{path}.heads", numbers.filename)
        numbers.add("predictor.heads", heads, "the object")
        width = int(inner // heads)
        if not isinstance(scale, float) or not abs(scale * width**0.5 - 1) <= 1e-6:
            raise unsafe(numbers.filename, f"{path}.scale is {scale!r:.40}, not {width} ** -0.5")
        numbers.add("predictor.dim_head", width, "its tensors and heads")
        mask = module.tensors.get("bias", module.hidden.get("bias"))
        if not isinstance(mask, StoredTensor) or mask.shape != (1, 1, tokens, tokens):
            raise unsafe(numbers.filename, f"{path}.bias is no mask of {tokens} tokens")
        seen = _first_row(file, mask).count_nonzero()
        numbers.add("predictor.num_patches", int(seen), "the object's mask")
    patches = numbers.need("predictor.num_patches", "it has no layers")
    if not patches or tokens % patches or math.isqrt(patches) ** 2 != patches:
        problem = f"{tokens} positions and {patches} patches a frame, not a square number of them"
        raise unsafe(numbers.filename, problem)
    numbers.add("predictor.num_frames", tokens // patches, TENSORS)
    for name in _children(known, "extra_encoders"):
        wide, inputs, kernel = shape(f"extra_encoders.{name}.patch_embed.weight", 3)
        if name not in {"action", "proprio"} or kernel != 1:
            raise unsafe(numbers.filename, f"a slot {name!r:.40} over {kernel} frames")
        named = "action_encoder.input_dim" if name == "action" else "proprio.in_chans"
        numbers.add(named, inputs, TENSORS)
        numbers.add(f"{name}.emb_dim", wide, TENSORS)


def _first_row(file: RunFile, mask: StoredTensor) -> Tensor:
    assert file.archive is not None  # noqa: S101 - its caller has a tensor of it
    row = replace(mask, shape=mask.shape[-1:], strides=mask.strides[-1:])
    with file.opened():
        return file.archive.tensors({"mask": row})["mask"]


def _backbone(
    known: Modules, numbers: Numbers, backbone: str, named: object
) -> tuple[JsonObject, Finish]:
    """The config's part ``encoder``, and what gives the tensors of a file their backbone."""
    filename, held = numbers.filename, known.get("backbone")
    if held is not None and held.kind.startswith("transformers."):
        return _huggingface(held), lambda state: state
    side = math.isqrt(numbers["predictor.num_patches"][0])
    if held is not None:
        return _trained(known, numbers, side), lambda state: _with_own(state, filename, side)
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
    named = {f"{OWN}{key}": tensor for key, tensor in frames.items()}
    return encoder_config(frames, side), lambda state: state | named


def _trained(known: Modules, numbers: Numbers, side: int) -> JsonObject:
    """The config of a DINOv2 that was trained too, and so lies in the file."""
    slots = sum(value for name, (value, _) in numbers.items() if name.endswith(".emb_dim"))
    width = numbers["predictor.dim"][0] - slots
    blocks = _children(known, "backbone.blocks")
    attended = (known.get(f"backbone.blocks.{one}.attn") for one in blocks)
    heads = (one and one.attributes.get("num_heads") for one in attended)
    if any(one != width // DIM_HEAD for one in heads):
        raise unsafe(numbers.filename, f"heads of the encoder are not of {DIM_HEAD} coordinates")
    patch = known["backbone"].attributes.get("patch_size")
    patch = plain_number(patch, "encoder.patch_size", numbers.filename)
    shape = {
        "_target_": "transformers.Dinov2Config", "hidden_size": width, "patch_size": patch,
        "num_hidden_layers": len(blocks), "num_attention_heads": width // DIM_HEAD,
        "image_size": side * int(patch),
    }  # fmt: skip
    return {"_target_": "transformers.Dinov2Model", "config": shape}


def _with_own(state: State, filename: str, side: int) -> State:
    own = {key.removeprefix(OWN): state[key] for key in state if key.startswith(OWN)}
    kept = {key: state[key] for key in state if not key.startswith(OWN)}
    prepared = prepare_backbone(filename, own, side)
    return kept | {f"{OWN}{key}": prepared[key] for key in prepared}


def _huggingface(held: Node) -> JsonObject:
    """The config that a Dinov2Model was made from, which loading checks."""
    config = held.attributes.get("config", {})
    known = {key: config[key] for key in DINOV2_KEYS if isinstance(config.get(key), PLAIN)}
    made = {"_target_": "transformers.Dinov2Config", **known}
    return {"_target_": "transformers.Dinov2Model", "config": made}
