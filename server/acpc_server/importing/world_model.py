"""Finds the world model in what a file describes, and reads its tensors by their names.

A file may hold the model itself, a training module or a wrapper around it, or a dict of such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from acpc_server.importing.archive import StoredTensor, unsafe
from acpc_server.importing.inert import Inert, Name

PARTS = ("encoder", "predictor", "action_encoder")
MODELS = (PARTS, ("predictor", "extra_encoders"))
MAX_MODULES, MAX_DEPTH, MAX_NAME = 20_000, 64, 300
WRAPPERS = ("state_dict", "model")
AVERAGES = re.compile(r"(^|_)ema(_|$)", re.IGNORECASE)
ROOTS = {"encoder", "backbone"}
PREFIXES = ("model._orig_mod.", "model.module.", "model.", "module.", "_orig_mod.")
# What a file holds that no family here reads, by the class of a module in it.
FOREIGN = {
    "stable_worldmodel.wm.tdmpc2.": "a TD-MPC2 agent, which plans by rewards that it learned and "
    "has no goal latent; no family here reads it",
    "stable_worldmodel.wm.gcrl.": "a goal-conditioned policy (GCRL), which predicts no latents",
}
# Tensors that TD-MPC2 has, in its own repository and in the public library.
TDMPC2_NAME = re.compile(r"(model\.)?_?(Qs|qs|dynamics|reward)\.")
DINO_WM = "dino_wm's dict of modules"


@dataclass(frozen=True)
class Module:
    """A module of a described network: its class, attributes and children."""

    kind: str
    attributes: dict[Any, Any]

    @property
    def children(self) -> dict[str, Module]:
        """Its children that are modules, in order."""
        found = ((key, as_module(value)) for key, value in _dict(self.attributes, "_modules"))
        return {str(key): module for key, module in found if module is not None}


@dataclass
class FoundModel:
    """A world model found in a file.

    Attributes:
        tensors: By name, as ``state_dict()`` would give them.
        root: The network, where the file describes one; None: plain tensors alone.
        path: Where in the file it lies.
        beside: Names of what lies beside it, which tell the family, and that there are averages.
        epoch: What the file itself says, or None.
    """

    tensors: dict[str, StoredTensor]
    root: Module | None = None
    path: str = ""
    beside: set[str] = field(default_factory=set)
    epoch: int | None = None


def as_module(value: object) -> Module | None:
    """The module that something describes, or None."""
    if isinstance(value, Inert) and isinstance(value.attributes.get("_modules"), dict):
        return Module(value.name, value.attributes)
    return None


def _dino_wm(value: object, filename: str) -> Module | None:
    """The modules of a dict that dino_wm keeps, named as PreJEPA's parts; None: another value."""
    parts = value if isinstance(value, dict) else {}
    if as_module(parts.get("predictor")) is None or as_module(parts.get("action_encoder")) is None:
        return None
    slots = Inert("torch.nn.modules.container.ModuleDict", None)
    named = {key: parts.get(f"{key}_encoder") for key in ("proprio", "action")}
    slots.state = {"_modules": {key: one for key, one in named.items() if one is not None}}
    children = {"predictor": parts["predictor"], "extra_encoders": slots}
    if (encoder := as_module(parts.get("encoder"))) is not None:
        key = encoder.attributes.get("feature_key")
        if key != "x_norm_patchtokens" or "base_model" not in encoder.children:
            problem = f"encoder is a {encoder.kind!r:.80} of {key!r:.40}, not DINOv2's patch tokens"
            raise unsafe(filename, problem)
        children["backbone"] = dict(_dict(encoder.attributes, "_modules"))["base_model"]
    return Module(DINO_WM, {"_modules": children})


def find(stored: object, filename: str) -> FoundModel:
    """The world model of a file; UnsafeCheckpoint says what the file holds instead."""
    epoch = stored.get("epoch") if isinstance(stored, dict) else None
    found = _find_module(stored, filename) or _find_tensors(stored, filename)
    found.epoch = epoch if type(epoch) is int and 0 <= epoch < 10**9 else None
    return found


def _find_module(stored: object, filename: str) -> FoundModel | None:
    """Search breadth first, so that the outermost is found; two at one depth are an error."""
    level: list[tuple[str, object, set[str]]] = [("", stored, set())]
    seen: set[int] = set()
    holds_module = False
    for _ in range(MAX_DEPTH):
        hits: list[FoundModel] = []
        following: list[tuple[str, object, set[str]]] = []
        for path, value, beside in level:
            if id(value) in seen or len(seen) > MAX_MODULES:
                continue
            seen.add(id(value))
            module = as_module(value) or _dino_wm(value, filename)
            holds_module |= module is not None
            for prefix, problem in FOREIGN.items():
                if module is not None and module.kind.startswith(prefix):
                    raise unsafe(filename, problem)
            if module is not None and any(set(x) <= module.children.keys() for x in MODELS):
                hits.append(FoundModel({}, module, path, beside))
                continue
            following.extend(_within(path, value))
        if len(hits) > 1:
            names = " and ".join(hit.path for hit in hits[:2])
            raise unsafe(filename, f"holds two world models, {names}; save the one that is meant")
        if hits:
            root = hits[0].root
            assert root is not None  # noqa: S101 - as set above
            hits[0].tensors = _state(root, filename)
            return hits[0]
        level = following
    if holds_module:
        kind = as_module(stored)
        what = f"a {kind.kind!r:.80}" if kind else "modules"
        raise unsafe(filename, f"holds {what} without a module of children {', '.join(PARTS)}")
    return None


def _within(path: str, value: object) -> Iterator[tuple[str, object, set[str]]]:
    """Yield the parts of a value that may be, or wrap, a world model."""
    inner: dict[Any, Any] = {}
    if isinstance(value, dict):
        inner = value
    elif isinstance(value, Inert):
        inner = value.attributes.get("_modules", {})
        if value.name.endswith(".OptimizedModule") and isinstance(value.args, tuple):
            inner = dict(enumerate(value.args[:1]))
    if isinstance(inner, dict):
        names = {str(key) for key in inner if isinstance(key, str)}
        for key, child in inner.items():
            if isinstance(child, dict | Inert):
                step = str(key)[:MAX_NAME] if isinstance(key, str | int) else "?"
                yield f"{path}.{step}".lstrip(".")[-MAX_NAME:], child, names


def _state(root: Module, filename: str) -> dict[str, StoredTensor]:
    """Parameters and stored buffers of every module, in the order of ``state_dict()``."""
    state: dict[str, StoredTensor] = {}
    pending, visits = [("", root, 0)], 0
    while pending:
        prefix, module, depth = pending.pop()
        hidden = _names(module.attributes.get("_non_persistent_buffers_set"))
        stored = _dict(module.attributes, "_parameters")
        stored += [x for x in _dict(module.attributes, "_buffers") if x[0] not in hidden]
        children = [*module.children.items()]
        visits += 1 + len(stored) + len(children)
        names = (str(key) if isinstance(key, str) else "?" for key, _ in (*stored, *children))
        if visits > MAX_MODULES or depth > MAX_DEPTH or len(prefix) > MAX_NAME:
            raise unsafe(filename, f"more than {MAX_MODULES} modules, or deeper than {MAX_DEPTH}")
        if any(len(name) > MAX_NAME or not name.isprintable() for name in names):
            raise unsafe(filename, f"a module with a name of more than {MAX_NAME} letters, or none")
        for key, value in stored:
            if value is not None:
                state[f"{prefix}{key}"] = _plain(value, f"{prefix}{key}", filename)
        pending += [(f"{prefix}{key}.", child, depth + 1) for key, child in reversed(children)]
    return state


def _plain(value: object, name: str, filename: str) -> StoredTensor:
    if not isinstance(value, StoredTensor):
        kind = value.name if isinstance(value, Inert) else type(value).__name__
        raise unsafe(filename, f"{name!r:.200}: a {kind!r:.80}, not a dense tensor of a known type")
    if value.expanded:
        problem = "an expanded tensor, many elements of which are one in memory; save a clone of it"
        raise unsafe(filename, f"{name!r:.200}: {problem}")
    return value


def _dict(attributes: dict[Any, Any], key: str) -> list[tuple[Any, Any]]:
    found = attributes.get(key)
    return [*found.items()] if isinstance(found, dict) else []


def _names(value: object) -> set[object]:
    """Members of a described set, of which a module has few."""
    args = value.args if isinstance(value, Inert) and isinstance(value.args, tuple) else ()
    listed = args[0] if args and isinstance(args[0], list) else []
    return {name for name in listed[:1000] if isinstance(name, str)}


def _find_tensors(stored: object, filename: str) -> FoundModel:
    """A state dict, bare or as Lightning wraps it, without what losses keep beside the model."""
    if not isinstance(stored, dict):
        kind = stored.name if isinstance(stored, Inert | Name) else type(stored).__name__
        raise unsafe(filename, f"holds a {kind!r:.80}, neither a module nor a state dict")
    if "model_state_dict" in stored:
        raise unsafe(
            filename,
            "a file of PLDM's own repository (model_state_dict): another architecture, with a "
            "convolutional encoder and a recurrent predictor, which no family here reads",
        )
    wrapped = (stored[key] for key in WRAPPERS if isinstance(stored.get(key), dict))
    inner: dict[Any, Any] = next(wrapped, stored)
    names = [key for key in inner if isinstance(key, str) and len(key) <= MAX_NAME]
    beside = {name.partition(".")[0] for name in names}
    keep = ""
    if not beside & ROOTS:  # what losses keep lies beside the model's own, and is left out
        keep = next((x for x in PREFIXES if any(name.startswith(x) for name in names)), "")
    if any(map(TDMPC2_NAME.match, names)):
        raise unsafe(filename, FOREIGN["stable_worldmodel.wm.tdmpc2."])
    if isinstance(stored.get("predictor"), dict):
        raise unsafe(
            filename,
            "state dicts by part, as jepa-wms and V-JEPA 2-AC save them; no family reads them, "
            "docs/bring-your-own-model.md tells how to add one",
        )
    tensors: dict[str, StoredTensor] = {}
    for key in names:
        if key.startswith(keep) and inner[key] is not None:
            name = key.removeprefix(keep).replace("_orig_mod.", "")
            if name in tensors:
                raise unsafe(filename, f"two tensors are named {name!r:.200}")
            tensors[name] = _plain(inner[key], name, filename)
    if not tensors:
        raise unsafe(filename, "holds no tensors")
    maps = {str(key) for key, value in stored.items() if isinstance(value, dict)}
    return FoundModel(tensors, beside=beside | set(filter(AVERAGES.search, maps)))
