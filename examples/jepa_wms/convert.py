"""Turns a world model of facebookresearch/jepa-wms into a checkpoint the server knows.

    python examples/jepa_wms/convert.py jepa_wm_pusht.pth.tar \
        --backbone dinov2_vits14_pretrain.pth --out ~/checkpoints/jepa-wm-pusht

Tensors are mapped by name and shape. Nothing in either file is executed, no class is looked up.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from acpc_server.errors import AcpcError, AlreadyExists
from acpc_server.importing.backbones import (
    DIM_HEAD,
    PATCHES,
    encoder_config,
    is_dinov3,
    read_backbone,
)
from acpc_server.importing.facts import count
from acpc_server.models import ModelCard
from acpc_server.models.plugin import (
    JsonObject,
    UnsafeCheckpoint,
    read_archive,
    unwrap,
    write_folder,
)
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD
from torch import Tensor

MODULE = "stable_worldmodel.wm.prejepa.module"
ADALN = "app.plan_common.models.AdaLN_vit.vit_predictor_AdaLN"
# Of the published JEPA-WM, those over DINOv3 read tokens of this width, those over DINOv2 of 384.
DINOV3_WIDTH = 1024
HALF = (0.5, 0.5, 0.5)
TRAINING_ONLY = {"opt", "scaler", "epoch"}
SLOTS = {"proprio": "proprio_encoder", "action": "action_encoder"}  # as upstream concatenates them


@dataclass(frozen=True)
class Training:
    """What the files do not say; the defaults are those of the published ones.

    Attributes:
        image_size: Side of the frames in pixels; by default 224 over DINOv2, 256 over DINOv3.
        history: Frames that the predictor sees when it plans (``ctxt_window``).
        proprio_weight: Of proprioception in distances and costs (``alpha`` of the planner).
        heads: Attention heads of a JEPA-WM's predictor (``pred_num_heads``).
        mean: Per channel, of pixels in [0, 1], that training took off; by default 0.5 for DINO-WM
            and ImageNet's for JEPA-WM.
        std: Per channel, that training divided by; by default as ``mean``.
    """

    image_size: int | None = None
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
    frames, side = read_backbone(
        backbone, training.image_size, training.mean or known[0], training.std or known[1]
    )
    training = dataclasses.replace(training, image_size=side)
    if is_jepa_wm(parts) and _width(parts["predictor"]) == DINOV3_WIDTH and not is_dinov3(frames):
        raise rejected(
            source,
            f"a JEPA-WM over tokens of {DINOV3_WIDTH} coordinates, as jepa_wm_droid is, whose "
            "backbone is DINOv3 ViT-L/16; give its weights as --backbone",
        )
    describe = jepa_wm_config if is_jepa_wm(parts) else dino_wm_config
    config = describe(parts, frames, source.name, training)
    state = {f"backbone.{name}": tensor for name, tensor in frames.items()}
    state |= {f"predictor.{name}": tensor for name, tensor in parts["predictor"].items()}
    for slot, key in SLOTS.items():
        for name, tensor in parts.get(key, {}).items():
            state[f"extra_encoders.{slot}.{name}"] = tensor
    options = {"proprio_weight": training.proprio_weight, "proprio_patches": "every"}
    return write_folder(
        destination,
        json.dumps(config, indent=2).encode(),
        state,
        options if "proprio_encoder" in parts else None,
    )


def read_parts(source: Path) -> dict[str, dict[str, Tensor]]:
    """State dicts of the networks in a training checkpoint; what only training needs is left out.

    Raises:
        UnsafeCheckpoint: Not a checkpoint of a predictor known here, or more than tensors.
    """
    stored = read_archive(source.name, source.read_bytes())
    wanted = {"predictor", *SLOTS.values()}
    if not isinstance(stored, Mapping) or not isinstance(stored.get("predictor"), Mapping):
        raise rejected(source, "no 'predictor' with the tensors of one; not a jepa-wms checkpoint")
    unknown = sorted(str(key) for key in stored.keys() - wanted - TRAINING_ONLY)
    if unknown:
        raise rejected(source, f"holds {', '.join(unknown)}, which a jepa-wms checkpoint does not")
    parts = {}
    for key in sorted(wanted & stored.keys()):
        if stored[key] is not None:
            state = unwrap(stored[key], f"{source.name}: {key}")
            parts[key] = {name.removeprefix("module."): value for name, value in state.items()}
            if len(parts[key]) != len(state):
                raise rejected(source, f"{key}: two tensors have one name without 'module.'")
    predictor = parts["predictor"]
    if is_jepa_wm(parts):
        return parts
    if "predictor_embed.weight" in predictor:
        raise rejected(
            source, "the predictor of V-JEPA 2-AC; examples/vjepa2_ac/convert.py takes it"
        )
    if "action_encoder" not in parts:
        raise rejected(source, "no 'action_encoder', without which no action is seen")
    return parts


def rejected(path: Path, problem: str) -> UnsafeCheckpoint:
    """The error for a file."""
    return UnsafeCheckpoint(f"{path.name}: {problem}; nothing was executed")


def is_jepa_wm(parts: dict[str, dict[str, Tensor]]) -> bool:
    """Whether the predictor is a JEPA-WM's, whose blocks alone are modulated by actions."""
    return any("adaLN" in name for name in parts["predictor"])


def _width(predictor: dict[str, Tensor]) -> int:
    """Coordinates of the tokens that a JEPA-WM's predictor reads; 0 where nothing says."""
    found = predictor.get("predictor_embed.weight")
    return found.shape[1] if found is not None and found.ndim == 2 else 0


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
    except (ValueError, IndexError):
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
        "encoder": encoder_config(frames, training.image_size),
        "predictor": {
            "_target_": f"{MODULE}.CausalPredictor",
            "num_patches": patches,
            "num_frames": positions // patches,
            "dim": dim,
            "depth": count(r"transformer\.layers\.(\d+)\.", predictor),
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
            "depth": count(r"predictor_blocks\.(\d+)\.", predictor),
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
        "encoder": encoder_config(frames, training.image_size),
        "predictor": {"_target_": ADALN, **shape},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert what the command line names; 1 and a line on stderr when that cannot be."""
    known = Training()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="dino_wm_*.pth.tar or jepa_wm_*.pth.tar")
    parser.add_argument("--backbone", type=Path, required=True, help="DINOv2 or DINOv3 weights")
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
    print(f"{asked.out}: {card.family}, {card.parameter_count:,} parameters, {card.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
