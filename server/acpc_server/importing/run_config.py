"""Reads the config of a training run, for the facts of the world model that was trained.

Two forms are known: flat keys, as the paper's released code has them (``img_size``, ``wm``,
``predictor``), and the tree that later code instantiates, under ``model``. Only plain references
(``${img_size}``) are resolved; anything else in ``${}`` counts as missing.
"""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from acpc.datasets import plain_yaml

from acpc_server.errors import UnsafeCheckpoint
from acpc_server.importing.facts import HEADS, WORDS_OF_HEADS, Numbers
from acpc_server.importing.jepa import KEYS
from acpc_server.models import VIT_SIZES, JsonObject, read_config, unsafe

MAX_BYTES, MAX_NESTING, MAX_STEPS = 1 << 18, 16, 8
REFERENCE = re.compile(r"\$\{([\w.]+)\}")
# Keys of the tree, whose parts have the numbers' own names, and of the flat form; what they say.
TREE = {
    **{f"model.{part}.{key}": f"{part}.{key}" for part, keys in KEYS.items() for key in keys},
    **{f"model.{head}.norm_fn.eps": f"{head}.eps" for head in HEADS},
}
FLAT = {
    "img_size": "encoder.image_size", "patch_size": "encoder.patch_size",
    "wm.history_size": "predictor.num_frames", "wm.embed_dim": "predictor.input_dim",
    **{f"predictor.{key}": f"predictor.{key}" for key in ("depth", "heads", "dim_head", "mlp_dim")},
}  # fmt: skip
EVERYWHERE = {"data.dataset.frameskip": "frameskip", "frameskip": "frameskip",
              "wm.action_dim": "action_dim", "image_noise": "augmentation"}  # fmt: skip


def read_run_config(path: Path) -> JsonObject:
    """The tree of a run's ``config.yaml`` or of a whole config saved as ``config.json``.

    Raises UnsafeCheckpoint: Too large, nested too deep, with aliases, or no mapping.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise UnsafeCheckpoint(f"{path.name}: more than {MAX_BYTES} bytes")
    if path.suffix == ".json":
        return read_config(raw, path.name)
    try:
        tree = plain_yaml(raw.decode("utf-8"), MAX_NESTING)
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise UnsafeCheckpoint(f"{path.name}: not plain YAML: {problem:.200}") from None
    if not isinstance(tree, dict):
        raise UnsafeCheckpoint(f"{path.name}: a mapping is wanted")
    return tree


def from_run_config(numbers: Numbers, tree: JsonObject, origin: str) -> None:
    """Note what a run's config says.

    Raises UnsafeCheckpoint: It disagrees with what the file says, or trains another family.
    """
    for key, name in EVERYWHERE.items():
        numbers.add(name, lookup(tree, key), f"{origin}, {key}")
    found = tree.get("model")
    model: JsonObject = found if isinstance(found, dict) else {}
    whole, target = "encoder" in model, str(model.get("_target_", ""))
    if whole and target and not re.search(r"(\.LeWM|\.PLDM|jepa\.JEPA)$", target):
        raise unsafe(numbers.filename, f"{origin} trains a {target!r:.80}, none of LeWM and PLDM")
    for key, name in (TREE if whole else FLAT).items():
        value = lookup(tree, key)
        if isinstance(value, int | float) and not isinstance(value, bool):  # no formula, no text
            numbers.add(name, value, f"{origin}, {key}")
    key = "model.encoder.size" if whole else "encoder_scale"
    size = lookup(tree, key)
    sized = whole and isinstance(lookup(tree, "model.encoder.hidden_size"), int)
    if not sized and isinstance(size, str) and size in VIT_SIZES:
        parts = ("hidden_size", "num_hidden_layers", "num_attention_heads")
        for part, value in zip(parts, VIT_SIZES[size], strict=True):
            numbers.add(f"encoder.{part}", value, f"{origin}, {key} = {size}")
    for name in WORDS_OF_HEADS if whole else ():
        named = lookup(tree, f"model.{name}._target_")
        if isinstance(named, str):
            numbers.add(name, named.rpartition(".")[2], f"{origin}, model.{name}")


def lookup(tree: JsonObject, path: str) -> Any:  # noqa: ANN401
    """Return the value at a dotted path, following plain references; None: none, or not plain."""

    def within(found: Any, step: str) -> Any:  # noqa: ANN401
        return found.get(step) if isinstance(found, dict) else None

    found: Any = tree
    for _ in range(MAX_STEPS):
        for step in path.split("."):
            if isinstance(found, str) and (reference := REFERENCE.fullmatch(found)):
                found = reduce(within, reference[1].split("."), tree)
            found = within(found, step)
        if not isinstance(found, str) or "${" not in found:
            return None if found == "???" else found
        reference = REFERENCE.fullmatch(found)
        if reference is None:
            return None
        path, found = reference[1], tree
    return None
