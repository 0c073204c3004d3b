"""Turns a world model of facebookresearch/jepa-wms into a checkpoint the server knows.

    python examples/jepa_wms/convert.py jepa_wm_pusht.pth.tar \
        --backbone dinov2_vits14_pretrain.pth --out ~/checkpoints/jepa-wm-pusht

Tensors are mapped by name and shape. Nothing in either file is executed, no class is looked up.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from acpc_server.errors import AcpcError, AlreadyExists
from acpc_server.models import ModelCard, load_checkpoint
from acpc_server.models.plugin import (
    JsonObject,
    StateReader,
    UnsafeCheckpoint,
    read_archive,
    unwrap,
)
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD
from torch import Tensor
from torch.nn import functional as F

MODULE = "stable_worldmodel.wm.prejepa.module"
ADALN = "app.plan_common.models.AdaLN_vit.vit_predictor_AdaLN"
DIM_HEAD = 64  # upstream's default of DINOv2 and of DINO-WM, and never set otherwise
# The files that are over DINOv3 have tokens of this width, those over DINOv2 of 384.
DINOV3_WIDTH = 1024
HALF = (0.5, 0.5, 0.5)
TRAINING_ONLY = {"opt", "scaler", "epoch"}
SLOTS = {"proprio": "proprio_encoder", "action": "action_encoder"}  # as upstream concatenates them
# Names of DINOv2's own releases and of transformers' Dinov2Model.
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


@dataclass(frozen=True)
class Training:
    """What the files do not say; the defaults are those of the published ones.

    Attributes:
        image_size: Side of the frames in pixels.
        history: Frames that the predictor sees when it plans (``ctxt_window``).
        proprio_weight: Of proprioception in distances and costs (``alpha`` of the planner).
        heads: Attention heads of a JEPA-WM's predictor (``pred_num_heads``).
        mean: Per channel, of pixels in [0, 1], that training took off; by default 0.5 for DINO-WM
            and ImageNet's for JEPA-WM.
        std: Per channel, that training divided by; by default as ``mean``.
    """

    image_size: int = 224
    history: int = 2
    proprio_weight: float = 0.1
    heads: int = 16
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None


def convert(
    source: Path, backbone: Path, destination: Path, training: Training | None = None
) -> ModelCard:
    """Write a folder that has been loaded once; whatever is wrong leaves nothing behind.

    Raises:
        AlreadyExists: ``destination`` exists.
        UnsafeCheckpoint: A file holds more than tensors and plain values, or other tensors.
        OSError: A file cannot be read or written.
    """
    training = training or Training()
    if destination.exists():
        raise AlreadyExists(f"{destination} exists; name a new folder", reason="FOLDER_EXISTS")
    parts = read_parts(source)
    known = (IMAGENET_MEAN, IMAGENET_STD) if is_jepa_wm(parts) else (HALF, HALF)
    frames = read_backbone(
        backbone, training.image_size, training.mean or known[0], training.std or known[1]
    )
    describe = jepa_wm_config if is_jepa_wm(parts) else dino_wm_config
    config = describe(parts, frames, source.name, training)
    state = {f"backbone.{name}": tensor for name, tensor in frames.items()}
    state |= {f"predictor.{name}": tensor for name, tensor in parts["predictor"].items()}
    for slot, key in SLOTS.items():
        for name, tensor in parts.get(key, {}).items():
            state[f"extra_encoders.{slot}.{name}"] = tensor
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        folder = Path(scratch, "checkpoint")
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        if "proprio_encoder" in parts:
            options = {"proprio_weight": training.proprio_weight}
            (folder / "acpc.json").write_text(json.dumps(options) + "\n")
        # Tensors may share their storage in a file of torch, and may not in this one.
        dense = {name: tensor.clone().contiguous() for name, tensor in state.items()}
        safetensors.torch.save_file(dense, folder / "weights.safetensors")
        model = load_checkpoint(Path(scratch), folder.name, device=torch.device("cpu"))
        folder.rename(destination)
    return model.card


def read_parts(source: Path) -> dict[str, dict[str, Tensor]]:
    """State dicts of the networks in a training checkpoint; what only training needs is left out.

    Raises:
        UnsafeCheckpoint: Not a checkpoint of a predictor known here, or more than tensors.
    """
    stored = read_archive(source.name, source.read_bytes())
    wanted = {"predictor", *SLOTS.values()}
    if not isinstance(stored, Mapping) or not isinstance(stored.get("predictor"), Mapping):
        raise _bad(source, "no 'predictor' with the tensors of one; not a jepa-wms checkpoint")
    unknown = sorted(str(key) for key in stored.keys() - wanted - TRAINING_ONLY)
    if unknown:
        raise _bad(source, f"holds {', '.join(unknown)}, which a jepa-wms checkpoint does not")
    parts = {}
    for key in sorted(wanted & stored.keys()):
        if stored[key] is not None:
            state = unwrap(stored[key], f"{source.name}: {key}")
            parts[key] = {name.removeprefix("module."): value for name, value in state.items()}
    predictor = parts["predictor"]
    if is_jepa_wm(parts):
        if _width(predictor) == DINOV3_WIDTH:
            raise _bad(
                source,
                f"a JEPA-WM over tokens of {DINOV3_WIDTH} coordinates, as jepa_wm_droid is: its "
                "backbone is DINOv3, which the server does not have",
            )
        return parts
    if "predictor_embed.weight" in predictor:
        raise _bad(source, "the predictor of V-JEPA 2-AC; examples/vjepa2_ac/convert.py takes it")
    if "action_encoder" not in parts:
        raise _bad(source, "no 'action_encoder', without which no action is seen")
    return parts


def is_jepa_wm(parts: dict[str, dict[str, Tensor]]) -> bool:
    """Whether the predictor is a JEPA-WM's, whose blocks alone are modulated by actions."""
    return any("adaLN" in name for name in parts["predictor"])


def _width(predictor: dict[str, Tensor]) -> int:
    """Coordinates of the tokens that a JEPA-WM's predictor reads; 0 where nothing says."""
    found = predictor.get("predictor_embed.weight")
    return found.shape[1] if found is not None and found.ndim == 2 else 0


def read_backbone(
    path: Path, image_size: int, trained_mean: Sequence[float], trained_std: Sequence[float]
) -> dict[str, Tensor]:
    """DINOv2's tensors under transformers' names, for frames as the server gives them.

    The server normalises with ImageNet's statistics; the patch projection is made to undo that.
    Frames have one size, for which positions are resampled as DINOv2's own code does.
    """
    state = _renamed(StateReader(path.name, path.read_bytes(), {}).tensors)
    if any(name.startswith(("storage_tokens", "rope_embed")) for name in state):
        raise _bad(path, "a DINOv3 backbone, which the server does not have")
    for name, axes in ((POSITIONS, 3), (PATCHES, 4), (PATCH_BIAS, 1)):
        if name not in state or state[name].ndim != axes or not state[name].numel():
            raise _bad(path, f"no {name} of {axes} axes; a DINOv2 backbone's weights are wanted")
    weight, bias = state[PATCHES].double(), state[PATCH_BIAS].double()
    if weight.shape[1] != len(IMAGENET_MEAN):
        raise _bad(path, f"patches of {weight.shape[1]} channels; RGB is wanted")
    grid, trained = image_size // weight.shape[-1], state[POSITIONS].shape[1] - 1
    if grid < 1 or math.isqrt(trained) ** 2 != trained:
        raise _bad(path, f"{trained} positions and {grid} patches a side; --image-size is another")
    state[POSITIONS] = resample(state[POSITIONS], grid)
    mean, std, before, divisor = (
        torch.tensor(values, dtype=torch.float64)[:, None, None]
        for values in (IMAGENET_MEAN, IMAGENET_STD, trained_mean, trained_std)
    )
    shift = weight * ((mean - before) / divisor)
    state[PATCHES] = (weight * (std / divisor)).float()
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
    square = positions[:, 1:].float().unflatten(1, (side, side)).permute(0, 3, 1, 2)
    scale = (grid + 0.1) / side
    resized = F.interpolate(square, scale_factor=(scale, scale), mode="bicubic")
    return torch.cat([positions[:, :1].float(), resized.flatten(2).transpose(1, 2)], dim=1)


def dino_wm_config(
    parts: dict[str, dict[str, Tensor]], frames: dict[str, Tensor], name: str, training: Training
) -> JsonObject:
    """The ``config.json`` that tensors of these shapes belong to; loading checks every shape."""
    predictor, patch = parts["predictor"], frames[PATCHES].shape[-1]
    try:
        slots = {
            slot: parts[key]["patch_embed.weight"].shape
            for slot, key in SLOTS.items()
            if key in parts
        }
        _, positions, dim = predictor["pos_embedding"].shape
        heads = predictor["transformer.layers.0.0.to_qkv.weight"].shape[0] // (3 * DIM_HEAD)
        hidden = predictor["transformer.layers.0.1.net.1.weight"].shape[0]
        modules = {
            slot: {"_target_": f"{MODULE}.Embedder", "in_chans": inputs, "emb_dim": wide}
            for slot, (wide, inputs, _) in slots.items()
        }
    except KeyError as error:
        raise UnsafeCheckpoint(f"{name}: no {error.args[0]}; not a DINO-WM predictor") from None
    except ValueError:
        raise UnsafeCheckpoint(
            f"{name}: positions or slots have other axes than DINO-WM's"
        ) from None
    patches = (training.image_size // patch) ** 2
    if not patches or positions % patches:
        raise UnsafeCheckpoint(
            f"{name}: {positions} positions are no whole frames of {patches} patches; "
            "--image-size is another"
        )
    return {
        "_target_": "stable_worldmodel.wm.PreJEPA",
        "history_size": training.history,
        "encoder": _encoder_config(frames, training),
        "predictor": {
            "_target_": f"{MODULE}.CausalPredictor",
            "num_patches": patches,
            "num_frames": positions // patches,
            "dim": dim,
            "depth": _count(r"transformer\.layers\.(\d+)\.", predictor),
            "heads": heads,
            "dim_head": DIM_HEAD,
            "mlp_dim": hidden,
        },
        "extra_encoders": {"_target_": "torch.nn.ModuleDict", "modules": modules},
    }


def jepa_wm_config(
    parts: dict[str, dict[str, Tensor]], frames: dict[str, Tensor], name: str, training: Training
) -> JsonObject:
    """As :func:`dino_wm_config`, of the family ``jepa_wm``."""
    predictor = parts["predictor"]
    try:
        inner, visual = predictor["predictor_embed.weight"].shape
        shape = {
            "embed_dim": visual,
            "predictor_embed_dim": inner,
            "depth": _count(r"predictor_blocks\.(\d+)\.", predictor),
            "num_heads": training.heads,
            "action_dim": predictor["action_encoder.weight"].shape[1],
        }
        if "proprio_encoder" in parts:
            slot, inputs, _ = parts["proprio_encoder"]["patch_embed.weight"].shape
            shape |= {"proprio_dim": inputs, "proprio_emb_dim": slot}
    except KeyError as error:
        raise UnsafeCheckpoint(f"{name}: no {error.args[0]}; not a JEPA-WM predictor") from None
    except (ValueError, IndexError):
        raise UnsafeCheckpoint(f"{name}: maps have other axes than JEPA-WM's") from None
    return {
        "_target_": "app.vjepa_wm.video_wm.VideoWM",
        "img_size": training.image_size,
        "ctxt_window": training.history,
        "encoder": _encoder_config(frames, training),
        "predictor": {"_target_": ADALN, **shape},
    }


def _encoder_config(frames: dict[str, Tensor], training: Training) -> JsonObject:
    width, _, patch, _ = frames[PATCHES].shape
    shape = {
        "_target_": "transformers.Dinov2Config",
        "hidden_size": width,
        "num_hidden_layers": _count(r"encoder\.layer\.(\d+)\.", frames),
        "num_attention_heads": max(1, width // DIM_HEAD),
        "image_size": training.image_size,
        "patch_size": patch,
    }
    return {"_target_": "transformers.Dinov2Model", "config": shape}


def _renamed(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith("mask_token"):
            continue
        if found := QKV.match(name):
            for part, rows in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                new = f"encoder.layer.{found[1]}.attention.attention.{part}.{found[2]}"
                state[new] = rows
            continue
        renamed = name
        for old, new in BACKBONE_NAMES:
            renamed = re.sub(old, new, renamed)
        state[renamed] = tensor
    return state


def _count(pattern: str, state: Mapping[str, Tensor]) -> int:
    """How many layers there are whose names begin so."""
    return len({found[1] for name in state if (found := re.match(pattern, name))})


def _bad(path: Path, problem: str) -> UnsafeCheckpoint:
    return UnsafeCheckpoint(f"{path.name}: {problem}; nothing was executed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert what the command line names; 1 and a line on stderr when that cannot be."""
    known = Training()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="dino_wm_*.pth.tar or jepa_wm_*.pth.tar")
    parser.add_argument(
        "--backbone", type=Path, required=True, help="DINOv2 weights, .pth or .safetensors"
    )
    parser.add_argument("--out", type=Path, required=True, help="new checkpoint folder")
    parser.add_argument("--image-size", type=int, default=known.image_size)
    parser.add_argument("--history", type=int, default=known.history)
    parser.add_argument("--proprio-weight", type=float, default=known.proprio_weight)
    parser.add_argument("--heads", type=int, default=known.heads, help="of a JEPA-WM's predictor")
    for name in ("mean", "std"):
        parser.add_argument(f"--{name}", type=float, nargs=3)
    asked = parser.parse_args(arguments)
    training = Training(
        asked.image_size, asked.history, asked.proprio_weight, asked.heads, asked.mean, asked.std
    )
    try:
        card = convert(asked.checkpoint, asked.backbone, asked.out, training)
    except (AcpcError, OSError) as error:
        print(f"not converted: {error}", file=sys.stderr)
        return 1
    print(f"{asked.out}: {card}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
