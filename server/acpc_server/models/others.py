"""Says what a folder holds that is no checkpoint, and which command makes one of it."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from typing import NamedTuple

from acpc.contract import WEIGHTS_SUFFIXES, is_weights_name

from acpc_server.models.config import CONFIG_NAME

PLDM_FILE = re.compile(r"epoch=\d+_sample_step=\d+\.ckpt")
CACHE = re.compile(r"(?:.*/)?models--(.+?)--(.+)")
FOREIGN = ("tdmpc2", "gcrl")
MAX_LOOK = 1 << 18


class Hint(NamedTuple):
    """Why a folder cannot be loaded as it is, and the command that helps; empty: none does."""

    problem: str
    command: str = ""


def look_into(folder: int, name: str) -> Hint | None:
    """Find what an open folder holds instead of a checkpoint; None: a checkpoint, or nothing.

    Reads no weights: names, and the beginning of a config.
    """
    present = sorted(os.listdir(folder))
    imports = f"acpc-server import {name} {name}-imported"
    if any(entry == ".metadata" or entry.endswith(".distcp") for entry in present):
        return Hint("a distributed checkpoint, in files of several processes", imports)
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
    with suppress(OSError, ValueError, RecursionError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(CONFIG_NAME, flags, dir_fd=folder), "rb") as file:  # noqa: PTH123
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
