"""Loads a checkpoint folder as a frozen world model of the family its ``_target_`` names.

Another distribution adds a family with an entry point in the group ``acpc.model_families`` that
names a ``ModelFamily`` object. Plug-ins are code the operator installed, so they are trusted; the
checkpoints they read are not, and reach them as parsed data only.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from acpc.contract import WEIGHTS_SUFFIXES

from acpc_server.errors import FailedPrecondition, InvalidArgument, NotFound, UnsafeCheckpoint
from acpc_server.models.config import (
    CONFIG_NAME,
    OPTIONS_NAME,
    JsonObject,
    bad_config,
    parse_config,
    read_config,
)
from acpc_server.models.families import FAMILIES
from acpc_server.models.folder import (
    DEFAULT_LIMITS,
    CheckpointEntry,
    CheckpointLimits,
    check_config,
    choose_weights,
    hash_file,
    open_folder,
    read_file,
)
from acpc_server.models.frozen import FrozenWorldModel
from acpc_server.models.weights import StateReader, check_container
from acpc_server.scheduling import ServingOptions

ENTRY_POINT_GROUP = "acpc.model_families"
SERVING = "serving"
# Beyond every published model. A window's attention mask takes the square of its tokens in bytes,
# and no weight need be as large, so parameters alone bound neither.
MAX_IMAGE_SIZE, MAX_WINDOW_TOKENS = 4096, 2**14


@runtime_checkable
class ModelFamily(Protocol):
    """The interface of a plug-in."""

    @property
    def name(self) -> str:
        """Name on the model card."""

    @property
    def targets(self) -> AbstractSet[str]:
        """Top-level ``_target_`` spellings of the family's configs."""

    def build(
        self,
        config: JsonObject,
        state: StateReader,
        *,
        device: torch.device,
        limits: CheckpointLimits,
    ) -> FrozenWorldModel:
        """Make the frozen model; ``state.tensors`` and ``state.digest`` are read on first use.

        Raises UnsafeCheckpoint: The config or the weights are not ones this family knows.
        """


def load_checkpoint(
    root: Path,
    name: str,
    weights: str = "",
    *,
    device: torch.device,
    limits: CheckpointLimits = DEFAULT_LIMITS,
) -> FrozenWorldModel:
    """Load the checkpoint folder ``name`` below ``root`` without executing anything in it.

    Each file is opened once, without following links, and these bytes are checked, hashed and
    parsed. Without ``weights`` the file is ``weights.pt``, or else the only one. Raises
    InvalidArgument: ``checkpoint.name`` or ``checkpoint.weights`` is malformed or ambiguous;
    NotFound: No such folder or file; PermissionDenied: A symbolic link on the way;
    UnsafeCheckpoint: The content is broken, unknown, too large or unsafe; names the key;
    FailedPrecondition: An installed plug-in family does not load.
    """
    return load_served(root, name, weights, device=device, limits=limits)[0]


def load_served(
    root: Path,
    name: str,
    weights: str = "",
    *,
    device: torch.device,
    limits: CheckpointLimits = DEFAULT_LIMITS,
) -> tuple[FrozenWorldModel, ServingOptions]:
    """As :func:`load_checkpoint`, with how the checkpoint is served."""
    with open_folder(root, name) as folder:
        check_config(folder, name)
        config = read_config(read_file(folder, CONFIG_NAME, limits.config_bytes))
        family = _find_family(config)  # before the weights are read
        filename = choose_weights(folder, name, weights)
        data = read_file(folder, filename, limits.weights_bytes, check_container)
        options, serving = _read_options(folder, limits)
    backbone = _read_backbone(root, options.get("backbone"), limits)
    state = StateReader(filename, data, config, options, backbone)
    model = family.build(config, state, device=device, limits=limits)
    size, tokens = model.card.image_size, model.card.latent_tokens * model.card.history
    if size > MAX_IMAGE_SIZE or tokens > MAX_WINDOW_TOKENS:
        raise bad_config(
            "",
            f"frames of {size} pixels and {tokens} patches in the predictor's window; the server "
            f"takes up to {MAX_IMAGE_SIZE} and {MAX_WINDOW_TOKENS}",
        )
    return model, serving


def _read_options(folder: int, limits: CheckpointLimits) -> tuple[JsonObject, ServingOptions]:
    """Read ``acpc.json``: what is the family's, which enters the digest, and what is not."""
    options: JsonObject = {}
    with suppress(NotFound):
        options = read_config(read_file(folder, OPTIONS_NAME, limits.config_bytes), OPTIONS_NAME)
    section = options.pop(SERVING, {})
    return options, parse_config(ServingOptions, section, SERVING, filename=OPTIONS_NAME)


@lru_cache(1 << 14)
def read_content(root: Path, entry: CheckpointEntry, limits: CheckpointLimits) -> tuple[str, str]:
    """Say what a checkpoint's files hold, or why they are not whole; loads nothing.

    Returns the sha256 over the sha256 of config, options where there are any, and weights; and the
    problem, without which there is no other. Raises as :func:`load_checkpoint` for names.
    """
    digest = hashlib.sha256()

    def is_config(filename: str, file: io.BufferedReader, _: int) -> None:
        read_config(file.read(limits.config_bytes), filename)

    try:
        with open_folder(root, entry.name) as folder:
            for filename in (CONFIG_NAME, OPTIONS_NAME)[: len(entry.stamp) // 3 - 1]:
                digest.update(hash_file(folder, filename, limits.config_bytes, is_config))
            limit = limits.weights_bytes
            digest.update(hash_file(folder, entry.weights, limit, check_container))
    except UnsafeCheckpoint as error:
        return "", error.message
    return digest.hexdigest(), ""


def _read_backbone(root: Path, path: object, limits: CheckpointLimits) -> StateReader | None:
    """Read the weights that ``acpc.json`` names for a backbone, below the checkpoint root."""
    if path is None:
        return None
    folder, _, filename = path.rpartition("/") if isinstance(path, str) else ("", "", "")
    if not folder or not filename.endswith(WEIGHTS_SUFFIXES):
        raise bad_config(
            "backbone",
            f"{path!r:.80}; wanted: FOLDER/FILE below the checkpoint root, FILE ending in "
            f"{' or '.join(WEIGHTS_SUFFIXES)}",
            OPTIONS_NAME,
        )
    try:
        with open_folder(root, folder) as opened:
            chosen = choose_weights(opened, folder, filename)
            data = read_file(opened, chosen, limits.weights_bytes, check_container)
    except (InvalidArgument, NotFound) as error:
        raise bad_config("backbone", error.message, OPTIONS_NAME) from error
    return StateReader(filename, data, {})


def _find_family(config: JsonObject) -> ModelFamily:
    """Return the family that knows the config's top-level ``_target_``."""
    target = config.get("_target_")
    if not isinstance(target, str):
        raise bad_config("_target_", "a string naming the model class is wanted")
    for built_in in FAMILIES:
        if target in built_in.targets:
            return built_in
    plugins: list[ModelFamily] = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        label = f"model family plug-in {entry.name!r} ({entry.value})"
        try:
            family = entry.load()
        except (ImportError, AttributeError) as error:
            raise FailedPrecondition(f"{label} does not load: {error}") from error
        if not isinstance(family, ModelFamily):
            raise FailedPrecondition(f"{label} is no ModelFamily: it needs name, targets and build")
        plugins.append(family)
    matches = [family for family in plugins if target in family.targets]
    if len(matches) > 1:
        names = ", ".join(sorted(family.name for family in matches))
        raise FailedPrecondition(f"several installed model families claim {target!r}: {names}")
    if matches:
        return matches[0]
    known = [name for family in (*FAMILIES, *plugins) for name in sorted(family.targets)]
    raise bad_config(
        "_target_",
        f"{target[:80]!r} is not a known target, and nothing was imported or run; known: "
        f"{', '.join(known)}",
    )
