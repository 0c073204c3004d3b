"""Loads a checkpoint folder as a frozen world model."""

from __future__ import annotations

from pathlib import Path

import torch

from acpc_server.models.config import read_config
from acpc_server.models.families import find_family
from acpc_server.models.folder import (
    CONFIG_NAME,
    DEFAULT_LIMITS,
    CheckpointLimits,
    choose_weights,
    open_folder,
    read_file,
)
from acpc_server.models.frozen import FrozenWorldModel
from acpc_server.models.weights import StateReader


def load_checkpoint(
    root: Path,
    name: str,
    weights: str = "",
    *,
    device: torch.device,
    limits: CheckpointLimits = DEFAULT_LIMITS,
) -> FrozenWorldModel:
    """Read the checkpoint folder ``name`` below ``root`` without executing anything in it.

    Each file is opened once, without following links, and its bytes are what is checked, hashed
    and parsed; a file changed meanwhile cannot slip past the checks.

    Args:
        root: The server's checkpoint root.
        name: Folder relative to ``root``, ``/`` between parts.
        weights: Weights file in it; ``weights.pt``, or else the only one, when empty.
        device: Where the model computes.
        limits: Sizes above which the checkpoint is rejected.

    Raises:
        InvalidArgument: ``checkpoint.name`` or ``checkpoint.weights`` is malformed or ambiguous.
        NotFound: No such folder or file.
        PermissionDenied: A symbolic link on the way.
        UnsafeCheckpoint: The content is broken, unknown, too large or unsafe; names the key.
        FailedPrecondition: An installed plug-in family does not load.
    """
    _, state = read_checkpoint(root, name, weights, limits)
    return build_model(state, device, limits)


def read_checkpoint(
    root: Path, name: str, weights: str, limits: CheckpointLimits
) -> tuple[bytes, StateReader]:
    """The bytes of ``config.json``, and a reader of the weights; raises as `load_checkpoint`.

    That some family knows the config is checked before the weights are read.
    """
    with open_folder(root, name) as folder:
        tree = read_file(folder, CONFIG_NAME, limits.config_bytes)
        config = read_config(tree)
        find_family(config)
        filename = choose_weights(folder, name, weights)
        data = read_file(folder, filename, limits.weights_bytes)
    return tree, StateReader(filename, data, config)


def build_model(
    state: StateReader, device: torch.device, limits: CheckpointLimits
) -> FrozenWorldModel:
    """The frozen model of some weights and their config."""
    return find_family(state.config).build(state.config, state, device=device, limits=limits)
