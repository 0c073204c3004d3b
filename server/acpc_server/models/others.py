"""Says what a folder holds that is no checkpoint, and which command makes one of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from acpc.contract import WEIGHTS_SUFFIXES, is_weights_name

from acpc_server.models.config import CONFIG_NAME
from acpc_server.opening import open_below, open_part

PLDM_FILE = re.compile(r"epoch=\d+_sample_step=\d+\.ckpt")
CACHE = re.compile(r"(?:.*/)?models--(.+?)--(.+)")
FOREIGN = ("tdmpc2", "gcrl")
MAX_LOOK = 1 << 18


class Hint(NamedTuple):
    """Why a folder cannot be loaded as it is, and the command that helps; empty: none does."""

    problem: str
    command: str = ""


def one_file_command(present: Collection[str], place: str) -> str:
    """What makes one file of the distributed checkpoint at ``place``; empty: it is none.

    ``present`` names what lies there; the file comes to lie beside it.
    """
    if ".metadata" not in present and not any(name.endswith(".distcp") for name in present):
        return ""
    if "meta.pt" in present:  # as Lightning's strategy for FSDP writes
        module = "lightning.pytorch.utilities.consolidate_checkpoint"
        return f"python -m {module} {place} --output_file {place}.ckpt"
    return f"python -m torch.distributed.checkpoint.format_utils dcp_to_torch {place} {place}.pt"


def look_below(folder: int, name: str) -> Hint | None:
    """As :func:`look_into`, and at the distributed checkpoints inside that training writes."""
    look = look_into(folder, name)
    if look is not None and look.command:
        return look
    for place in ("", "checkpoints/"):
        for inner in (place + entry for entry in _names(folder, place or ".")):
            if command := one_file_command(_names(folder, inner), f"{name}/{inner}"):
                problem = f"{inner} is a distributed checkpoint, in files of several processes"
                return Hint(problem, f"{command}, then acpc-server import {name} {name}-imported")
    return look


def _names(folder: int, place: str) -> list[str]:
    """What lies in a folder below an open one, by name; nothing where it is none, or a link."""
    try:
        opened = open_below(folder, Path(place).parts, os.O_DIRECTORY)
    except OSError:
        return []
    try:
        return sorted(entry.name for entry in os.scandir(opened))
    finally:
        os.close(opened)


def look_into(folder: int, name: str) -> Hint | None:
    """Find what an open folder holds instead of a checkpoint; None: a checkpoint, or nothing.

    Reads no weights: names, and the beginning of a config.
    """
    present = sorted(os.listdir(folder))
    imports = f"acpc-server import {name} {name}-imported"
    if command := one_file_command(present, name):
        problem = "a distributed checkpoint, in files of several processes"
        then = f"acpc-server import {command.split()[-1]} {name}-imported"
        config = f" --config {name}/{CONFIG_NAME}" if CONFIG_NAME in present else ""
        return Hint(problem, f"{command}, then {then}{config}")
    weights = [entry for entry in present if entry.endswith((*WEIGHTS_SUFFIXES, ".pth"))]
    if found := CACHE.fullmatch(name):
        problem = "a cache of the Hub, whose files are links; the server follows none"
        return Hint(
            problem, f"acpc-server import hf:{found[1]}/{found[2]} {found[2]}, or {imports}"
        )
    if any(PLDM_FILE.fullmatch(entry) for entry in weights):
        return Hint("files of PLDM's own repository, another architecture, which no family reads")
    if CONFIG_NAME not in present:
        if not weights:
            return None
        return Hint(f"no {CONFIG_NAME} beside {weights[0]}: what training wrote", imports)
    return _look_at_config(folder, weights, imports)


def _look_at_config(folder: int, weights: list[str], imports: str) -> Hint | None:
    tree: object = None
    with (
        suppress(OSError, ValueError, RecursionError),
        os.fdopen(open_part(folder, CONFIG_NAME), "rb") as file,
    ):
        tree = json.loads(file.read(MAX_LOOK))
    target = tree.get("_target_") if isinstance(tree, dict) else None
    if isinstance(tree, dict) and target is None and isinstance(tree.get("model"), dict):
        return Hint(f"{CONFIG_NAME} is a whole training config, the tree lies under model", imports)
    if isinstance(target, str) and any(f".{kind}." in target for kind in FOREIGN):
        return Hint(f"a {target[:80]}, which predicts no goal latents; no family reads it")
    if not weights:
        return Hint(f"{CONFIG_NAME} without a weights file")
    plain = [entry for entry in weights if is_weights_name(entry)]
    if not plain:
        return Hint(f"{weights[0]} alone, a pickled model", imports)
    if len(plain) > 1 and "weights.pt" not in plain:
        return Hint(f"{len(plain)} epochs; a request names one", f"NAME:{plain[-1]}")
    return None
