"""Looks through every weights file of a run, and finds the world model in it.

That is the model, a wrapper around it, or plain tensors.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from acpc_server.errors import FailedPrecondition, NotFound, UnsafeCheckpoint
from acpc_server.importing.sources import Run, epoch_in
from acpc_server.models import (
    AVERAGES,
    DEFAULT_LIMITS,
    WRAPPERS,
    Archive,
    Node,
    StateReader,
    StoredTensor,
    check_container,
    choose_state,
    read_open,
    unsafe,
    unwrap,
)

PARTS = ("encoder", "predictor", "action_encoder")
MODELS = (PARTS, ("predictor", "extra_encoders"))
# What a file holds that no family here reads, by the class of a module in it.
FOREIGN = {
    "stable_worldmodel.wm.tdmpc2.": "a TD-MPC2 agent, which plans by rewards that it learned and "
    "has no goal latent; no family here reads it",
    "stable_worldmodel.wm.gcrl.": "a goal-conditioned policy (GCRL), which predicts no latents",
}
# Tensors that TD-MPC2 has, in its own repository and in the public library.
TDMPC2_NAME = re.compile(r"(model\.)?_?(Qs|qs|dynamics|reward)\.")
# Modules of the dict that dino_wm keeps, and PreJEPA's names of them.
DINO_WM = {
    "predictor": "predictor", "proprio_encoder": "extra_encoders.proprio",
    "action_encoder": "extra_encoders.action", "encoder.base_model": "backbone",
}  # fmt: skip
Records = dict[str, StoredTensor | str]


@dataclass
class FoundModel:
    """A world model found in a file."""

    archive: Archive  # the file
    tensors: Records  # by name, as ``state_dict()`` would give them
    modules: dict[str, Node]  # of a network by path, "" the root; empty: plain tensors alone
    path: str  # where in the file it lies
    beside: set[str]  # names of what lies beside it, which tell the family
    others: list[str]  # what else of the file holds weights
    epoch: int | None = None  # what the file itself says


@dataclass(frozen=True)
class RunFile:
    """A weights file that was looked through, and the name of what it becomes.

    ``found`` is None for safetensors, which hold nothing but tensors.
    """

    path: Path
    found: FoundModel | None
    epoch: int | None
    target: str
    size: int
    sha256: str

    def tensors(self, records: Records | None = None) -> dict[str, Tensor]:
        """Read the file again, and make the model's tensors, or others of it.

        Raises FailedPrecondition: It was written to meanwhile.
        """
        data = read_bytes(self.path)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise FailedPrecondition(f"{self.path.name}: changed while it was read; try again")
        if self.found is None:
            return StateReader(self.path.name, data, {}).tensors
        return self.found.archive.tensors(records or self.found.tensors, data)


def read_run(run: Run, key: str = "") -> list[RunFile]:
    """Look through every file of a run; ``key`` names the weights in them that are meant.

    Raises UnsafeCheckpoint: A file is damaged, hostile, or holds something else.
    """
    files = [_read(path, key) for path in run.files]
    if len(files) == 1 and files[0].epoch is None:
        return [replace(files[0], target="weights.pt")]
    return files


def read_bytes(path: Path) -> bytes:
    """A weights file, once its ends and its size are those of one.

    Raises NotFound: No such file; UnsafeCheckpoint: No regular file, above the server's limit, or
    not the container that its name says.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist") from None
    except OSError as error:
        raise FailedPrecondition(f"{path} cannot be opened: {error.strerror}") from None
    if path.is_dir():
        os.close(descriptor)
        raise UnsafeCheckpoint(f"{path.name}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        return read_open(file, path.name, DEFAULT_LIMITS.weights_bytes, check_container)


def _read(path: Path, key: str) -> RunFile:
    epoch, data = epoch_in(path.name), read_bytes(path)
    plain = "".join(x if x.isalnum() or x in "-_." else "_" for x in path.stem)[:100]
    target = f"weights_{plain}.pt" if epoch is None else f"weights_epoch_{epoch}.pt"
    found = None if path.suffix == ".safetensors" else find(Archive(path.name, data), key)
    return RunFile(path, found, epoch, target, len(data), hashlib.sha256(data).hexdigest())


def find(archive: Archive, key: str = "") -> FoundModel:
    """The world model of a file, or at a path in it; UnsafeCheckpoint says what is there."""
    for prefix, problem in FOREIGN.items():
        if any(node.kind.startswith(prefix) for node in archive.nodes.values()):
            raise unsafe(archive.filename, problem)
    found = _find_module(archive, key) or _find_tensors(archive, key)
    root = archive.nodes.get("")  # which a damaged file may lack
    epoch = root.attributes.get("epoch") if root else None
    found.epoch = epoch if type(epoch) is int and 0 <= epoch < 10**9 else None
    return found


def _find_module(archive: Archive, key: str) -> FoundModel | None:
    """The outermost module, or the one at a path; two at one depth are an error."""
    nodes, filename = archive.nodes, archive.filename
    modules = {path for path, node in nodes.items() if node.kind != "dict"}

    def is_model(path: str) -> bool:
        kinds = (("predictor", "action_encoder"),) if nodes[path].kind == "dict" else MODELS
        at = f"{path}." if path else ""
        return any(all(f"{at}{part}" in modules for part in parts) for parts in kinds)

    hits = [path for path in nodes if is_model(path)]
    if key:
        hits = [path for path in hits if path == key]
    elif not hits and modules and not any(
        nodes[place].kind == "dict" and nodes[place].tensors for place in ("", *WRAPPERS)
        if place in nodes
    ):  # fmt: skip
        what = f"a {archive.kind!r:.80}" if "" in modules else "modules"
        raise unsafe(filename, f"holds {what} without a module of children {', '.join(PARTS)}")
    if not hits:
        return None
    least = min(nodes[path].depth for path in hits)
    found = [_module_at(archive, path) for path in hits if nodes[path].depth == least]
    if any(other.tensors != found[0].tensors for other in found):
        names = " and ".join(hit.path for hit in found[:2])
        raise unsafe(filename, f"holds two world models, {names}; name one with --weights-key")
    return found[0]


def _module_at(archive: Archive, path: str) -> FoundModel:
    nodes = archive.nodes
    below = {
        name.removeprefix(f"{path}.") if path else name: node
        for name, node in nodes.items()
        if name != path and name.startswith(f"{path}." if path else "")
    }
    if nodes[path].kind == "dict":
        below = _renamed(below, archive.filename)
    modules = {"": nodes[path], **{name: x for name, x in below.items() if x.kind != "dict"}}
    tensors = {
        f"{name}.{key}".lstrip("."): record
        for name, node in modules.items() if name or node.kind != "dict"
        for key, record in node.tensors.items()
    }  # fmt: skip
    archive.check(tensors)
    beside: set[str] = set()
    if path:
        parent = path.rpartition(".")[0]
        beside = {name.removeprefix(f"{parent}.").partition(".")[0] for name in nodes
                  if not parent or name.startswith(f"{parent}.")}  # fmt: skip
        beside |= set(nodes[parent].attributes) if parent in nodes else set()
    others = sorted(filter(AVERAGES.search, beside))
    return FoundModel(archive, tensors, modules, path, beside, others)


def _renamed(below: dict[str, Node], filename: str) -> dict[str, Node]:
    """The modules that dino_wm keeps in a dict, by PreJEPA's names."""
    encoder = below.get("encoder")
    if encoder is not None and encoder.kind != "dict":
        key = encoder.attributes.get("feature_key")
        if key != "x_norm_patchtokens" or "encoder.base_model" not in below:
            problem = f"encoder is a {encoder.kind!r:.80} of {key!r:.40}, not DINOv2's patch tokens"
            raise unsafe(filename, problem)
    made = {"extra_encoders": Node(1, "torch.nn.modules.container.ModuleDict", {}, {}, {})}
    for old, new in DINO_WM.items():
        made |= {new + name.removeprefix(old): node for name, node in below.items()
                 if name == old or name.startswith(f"{old}.")}  # fmt: skip
    return made


def _find_tensors(archive: Archive, key: str) -> FoundModel:
    """A state dict, bare or as Lightning wraps it, without what losses keep beside the model."""
    filename, nodes = archive.filename, archive.nodes
    if archive.kind != "dict" or "" not in nodes:
        problem = f"holds a {archive.kind!r:.80}, neither a module nor a state dict"
        raise unsafe(filename, problem)
    if "model_state_dict" in nodes[""].attributes:
        raise unsafe(
            filename,
            "a file of PLDM's own repository (model_state_dict): another architecture, with a "
            "convolutional encoder and a recurrent predictor, which no family here reads",
        )
    path, others = choose_state(archive, key)
    entries = {name: x for name, x in archive.entries(path).items() if x != "NoneType"}
    beside = {name.partition(".")[0] for name in entries}
    if any(map(TDMPC2_NAME.match, entries)):
        raise unsafe(filename, FOREIGN["stable_worldmodel.wm.tdmpc2."])
    if not path and "predictor" in nodes and nodes["predictor"].kind == "dict":
        raise unsafe(
            filename,
            "state dicts by part, as jepa-wms and V-JEPA 2-AC save them; no family reads them, "
            "docs/bring-your-own-model.md tells how to add one",
        )
    tensors = unwrap(entries, filename, wrapped=bool(path))
    archive.check(tensors)
    return FoundModel(archive, tensors, {}, path, beside, others)
