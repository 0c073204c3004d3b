"""Turns V-JEPA 2-AC weights as their authors publish them into a checkpoint for this plug-in.

    python examples/vjepa2_ac/convert.py vjepa2-ac-vitg.pt --out ~/checkpoints/vjepa2-ac
    python examples/vjepa2_ac/convert.py vjepa2_ac_oss.pth.tar --encoder vjepa2_vit_giant.pth \
        --out ~/checkpoints/vjepa2-ac-oss

Tensors are mapped by name and shape. Nothing in a file is executed, no class is looked up.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from acpc_server.errors import AcpcError, AlreadyExists, FailedPrecondition
from acpc_server.models import ModelCard
from acpc_server.models.plugin import (
    ENTRY_POINT_GROUP,
    CheckpointLimits,
    JsonObject,
    UnsafeCheckpoint,
    read_archive,
    unwrap,
    write_folder,
)
from torch import Tensor

HEAD = 64  # coordinates of an attention head in every published model
PREFIXES = re.compile(r"^(?:module\.|backbone\.)+")
OUTSIDE = ("action_encoder", "proprio_encoder")  # of predictors that are given embeddings
State = dict[str, Tensor]


@dataclass(frozen=True)
class Training:
    """What the files do not say; the defaults are those of the published models.

    Attributes:
        image_size: Side of the frames in pixels.
        history: Frames that the predictor is given at most; training showed it 7.
        encoder_heads: Attention heads; None: of 64 coordinates each.
        predictor_heads: As ``encoder_heads``.
        extrinsics: Whether training gave the predictor the camera's pose.
    """

    image_size: int = 256
    history: int = 7
    encoder_heads: int | None = None
    predictor_heads: int | None = None
    extrinsics: bool = False


def convert(
    source: Path, destination: Path, training: Training | None = None, encoder: Path | None = None
) -> ModelCard:
    """Write a folder that has been loaded once; whatever is wrong leaves nothing behind.

    ``encoder`` is the file with the encoder where ``source`` holds none.

    Raises:
        AlreadyExists: ``destination`` exists.
        UnsafeCheckpoint: A file holds more than tensors and plain values, or other tensors.
        FailedPrecondition: The plug-in is not installed.
        OSError: A file cannot be read or written.
    """
    training = training or Training()
    if destination.exists():
        raise AlreadyExists(f"{destination} exists; name a new folder", reason="FOLDER_EXISTS")
    if not entry_points(group=ENTRY_POINT_GROUP, name="vjepa2-ac"):
        raise FailedPrecondition(
            f"the plug-in acpc-vjepa2-ac is not installed here: pip install {Path(__file__).parent}"
        )
    frames, predictor = read_parts(source, encoder, training)
    config = config_of(frames, predictor, source.name, training)
    state = {f"encoder.{name}": tensor for name, tensor in frames.items()}
    state |= {f"predictor.{name}": tensor for name, tensor in predictor.items()}
    limits = CheckpointLimits(
        weights_bytes=2**20 + 2 * sum(tensor.nbytes for tensor in state.values()),
        parameters=2 * sum(tensor.numel() for tensor in state.values()),
    )
    for part in (frames, predictor):
        part.clear()  # the model below takes as much memory
    return write_folder(destination, json.dumps(config, indent=2).encode(), state, limits=limits)


def read_parts(source: Path, encoder: Path | None, training: Training) -> tuple[State, State]:
    """The tensors of the encoder and of the predictor, under the network's names.

    Raises:
        UnsafeCheckpoint: Not such files, or more than tensors and plain values in them.
    """
    stored = _archive(source)
    if not isinstance(stored.get("predictor"), Mapping):
        raise _bad(source, "no 'predictor' with the tensors of one; not a V-JEPA 2-AC checkpoint")
    for name in OUTSIDE:
        if isinstance(stored.get(name), Mapping) and stored[name]:
            raise _bad(source, f"embeds by an '{name}' outside the predictor, as DINO-WM does")
    predictor = {
        name.replace("proprio_encoder.", "state_encoder."): tensor
        for name, tensor in _part(stored, "predictor", source).items()
        if training.extrinsics or not name.startswith("extrinsics_encoder.")
    }
    if not any(name.startswith("predictor_blocks.") for name in predictor):
        raise _bad(source, "no 'predictor_blocks'; not the predictor of V-JEPA 2-AC")
    if any("adaLN" in name for name in predictor):
        raise _bad(source, "the AdaLN predictor of a JEPA-WM; see examples/jepa_wms")
    own = stored.get("encoder") is not None
    if encoder is None and not own:
        raise _bad(source, "no 'encoder'; name the file of V-JEPA 2's encoder with --encoder")
    if encoder is not None:
        if own:
            raise _bad(source, "holds an encoder of its own; leave --encoder out")
        source, stored = encoder, _archive(encoder)
    # Positions are rotary; sines and cosines that a file keeps beside them are never read.
    frames = {
        name: tensor
        for name, tensor in _part(stored, "encoder", source).items()
        if name != "pos_embed"
    }
    return frames, predictor


def config_of(frames: State, predictor: State, name: str, training: Training) -> JsonObject:
    """The ``config.json`` that tensors of these shapes belong to; loading checks every shape."""
    try:
        width, _, tubelet, patch, _ = frames["patch_embed.proj.weight"].shape
        hidden = frames["blocks.0.mlp.fc1.weight"].shape[0]
        inner, action = predictor["action_encoder.weight"].shape
        inner_hidden = predictor["predictor_blocks.0.mlp.fc1.weight"].shape[0]
    except KeyError as error:
        raise UnsafeCheckpoint(f"{name}: no {error.args[0]}; not V-JEPA 2-AC") from None
    except (ValueError, IndexError):
        raise UnsafeCheckpoint(f"{name}: tensors of other axes than V-JEPA 2-AC's") from None
    return {
        "_target_": "acpc_vjepa2_ac.VJepa2AC",
        "image_size": training.image_size,
        "patch_size": patch,
        "tubelet_size": tubelet,
        "encoder": {
            "width": width,
            "depth": _depth("blocks", frames),
            "heads": training.encoder_heads or max(1, width // HEAD),
            "hidden": hidden,
        },
        "predictor": {
            "width": inner,
            "depth": _depth("predictor_blocks", predictor),
            "heads": training.predictor_heads or max(1, inner // HEAD),
            "hidden": inner_hidden,
        },
        "action_dim": action,
        "history": training.history,
        "pose": "state_encoder.weight" in predictor,
        "extrinsics": training.extrinsics,
    }


def _archive(path: Path) -> Mapping[str, object]:
    stored = read_archive(path.name, path.read_bytes())
    if not isinstance(stored, Mapping):
        raise _bad(path, f"holds a {type(stored).__name__}, not the parts of a checkpoint")
    return stored


def _part(stored: Mapping[str, object], key: str, path: Path) -> State:
    """One network's tensors, without the prefixes of wrappers that training put around it."""
    if not isinstance(stored.get(key), Mapping):
        raise _bad(path, f"no '{key}' with the tensors of one")
    state = unwrap(stored[key], f"{path.name}: {key}")
    found = {PREFIXES.sub("", name): tensor for name, tensor in state.items()}
    if len(found) != len(state):
        raise _bad(path, f"{key}: two tensors have one name without training prefixes")
    return found


def _depth(blocks: str, state: State) -> int:
    return len({name.split(".")[1] for name in state if name.startswith(f"{blocks}.")})


def _bad(path: Path, problem: str) -> UnsafeCheckpoint:
    return UnsafeCheckpoint(f"{path.name}: {problem}")


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 when the file was rejected; says why."""
    usual = Training()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="vjepa2-ac-vitg.pt or vjepa2_ac_*.pth.tar")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    parser.add_argument("--encoder", type=Path, help="V-JEPA 2's encoder, for jepa-wms files")
    parser.add_argument("--image-size", type=int, default=usual.image_size)
    parser.add_argument("--history", type=int, default=usual.history, help="longest window")
    parser.add_argument("--encoder-heads", type=int, help="default: 64 coordinates each")
    parser.add_argument("--predictor-heads", type=int, help="default: 64 coordinates each")
    parser.add_argument("--extrinsics", action="store_true", help="trained with camera poses")
    given = parser.parse_args(arguments)
    training = Training(
        given.image_size,
        given.history,
        given.encoder_heads,
        given.predictor_heads,
        given.extrinsics,
    )
    try:
        card = convert(given.source, given.out, training, given.encoder)
    except (AcpcError, OSError) as error:
        print(f"{given.source.name}: not converted: {error}", file=sys.stderr)
        return 1
    print(f"{given.out}: {card.family}, {card.parameter_count:,} parameters, {card.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
