"""Saves a torch module of LeWM's or PLDM's layout as a checkpoint folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from acpc_server.errors import InvalidArgument
from acpc_server.importing.facts import Numbers
from acpc_server.importing.jepa import as_config, family_of, model_tensors, note_model
from acpc_server.importing.world_model import PARTS, Records
from acpc_server.models import (
    CONFIG_NAME,
    ModelCard,
    Node,
    StoredTensor,
    load_checkpoint,
    new_folder,
    save_weights,
)

_COMPILED = "_orig_mod"
_NAME = "the model"


def save_checkpoint(model: nn.Module, folder: str | Path) -> ModelCard:
    """Writes ``config.json`` and ``weights.pt`` of a world model, and loads them as a server does.

    Args:
        model: ``LeWM`` or ``PLDM`` of stable-worldmodel, the paper's ``JEPA``, or what wraps one:
            a LightningModule, DataParallel, torch.compile. It is not changed.
        folder: A new folder below the server's checkpoint root; written whole or not at all.

    Returns: What the server will say of it: family, digests, widths.

    Raises InvalidArgument: No such model within, or one without values; UnsafeCheckpoint: It
    computes what no family does; AlreadyExists: The folder does; OSError: It cannot be written.
    """
    within = model.modules() if isinstance(model, nn.Module) else ()
    inner = next((x for x in within if {*PARTS} <= {name for name, _ in x.named_children()}), None)
    if inner is None:
        found = f"found a {_class_of(model)} without children {', '.join(PARTS)}"
        wanted = "wanted LeWM or PLDM; docs/bring-your-own-model.md is for other networks"
        raise InvalidArgument("model", f"{found}; {wanted}")
    if any(x.is_meta for x in inner.state_dict().values()):
        raise InvalidArgument("model", "found tensors of the meta device, wanted their values")
    whole = {_plain(name): x.detach().cpu() for name, x in inner.state_dict().items()}
    modules = {_plain(name): _described(x) for name, x in inner.named_modules()}
    state, numbers = model_tensors(whole), Numbers(_NAME)
    held: Records = {
        name: StoredTensor(str(x.dtype), "", x.numel(), 0, tuple(x.shape), x.stride())
        for name, x in state.items()
    }
    note_model(numbers, held, modules)
    beside = {name for name, _ in model.named_children()}
    family = family_of(modules, beside) or "lewm"  # both compute the same
    target = Path(folder)
    with new_folder(target) as made:
        (made / CONFIG_NAME).write_bytes(as_config(numbers, family, held))
        save_weights(state, made / "weights.pt")
        return load_checkpoint(made.parent, made.name, device=torch.device("cpu")).card


def _plain(name: str) -> str:
    """A name without what torch.compile puts before those of a part."""
    return ".".join(step for step in name.split(".") if step != _COMPILED)


def _class_of(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _described(module: nn.Module) -> Node:
    """A module as a pickle of it would be described."""
    known = {k: x for k, x in vars(module).items() if isinstance(x, bool | int | float | str)}
    config: Any = getattr(module, "config", None)
    if hasattr(config, "to_dict"):
        known["config"] = config.to_dict()
    return Node(0, _class_of(module), {}, {}, known)
