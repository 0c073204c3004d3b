"""Checkpoint folders that are broken or malicious, and the answer each must get.

Every case builds its folder below a checkpoint root and returns the reference a caller would send.
Payloads that come to be executed create ``root / WITNESS``.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from hostile_builders import (
    DROP,
    NAME,
    QKV,
    WITNESS,
    Ref,
    bare_pickle,
    both_generations,
    config_edit,
    config_text,
    drop_tensor,
    empty_folder,
    hidden_in_safetensors,
    huge_header,
    inflated_storage,
    legacy_format,
    linked_file,
    linked_folder,
    linked_parent,
    nested,
    object_checkpoint,
    odd_file,
    overlapping_entries,
    overlong_offsets,
    pickled_bytearray,
    pickled_in_archive,
    pickled_tensor_value,
    plain_file,
    poke,
    reference,
    safetensors_bytes,
    set_tensor,
    several_epochs,
    sparse,
    state_edit,
    weights_bytes,
    without,
    zip_bomb,
)
from torch import nn

__all__ = ["HOSTILE_FOLDERS", "NAME", "WITNESS", "HostileFolder", "Ref"]


class HostileFolder(NamedTuple):
    """One case: how to build it, and the status name and words the answer must hold."""

    id: str
    build: Callable[[Path], Ref]
    code: str
    fragment: str


EVIL = {"_target_": "os.system", "command": f"touch {WITNESS}"}
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 72351744\n"
UNSAFE = "FAILED_PRECONDITION"
INVALID = "INVALID_ARGUMENT"
DENIED = "PERMISSION_DENIED"
ABSENT = "NOT_FOUND"

# Edits of config.json: the key, its value (or DROP it), and words of the answer.
CONFIG_EDITS: dict[str, tuple[str, object, str]] = {
    "target-model": ("_target_", "os.system", "_target_"),
    "target-unhashable": ("_target_", ["a"], "_target_"),
    "target-absent": ("_target_", DROP, "_target_"),
    "target-encoder": (
        "encoder._target_",
        "os.system",
        "encoder._target_: 'os.system' is not a known target",
    ),
    "target-norm": (
        "projector.norm_fn",
        {**EVIL, "_partial_": True},
        "projector.norm_fn._target_: 'os.system'",
    ),
    "target-extra": ("predictor.warm_up", EVIL, "predictor.warm_up: unknown key"),
    "target-value": ("predictor.depth", EVIL, "predictor.depth"),
    "hydra-args": ("encoder._args_", [1], "encoder._args_"),
    "key-missing": ("predictor.num_frames", DROP, "predictor.num_frames: required"),
    "part-missing": ("encoder", DROP, "encoder: required"),
    "part-list": ("encoder", [], "encoder"),
    "number-as-text": ("predictor.depth", "2", "predictor.depth"),
    "number-as-bool": ("predictor.depth", True, "predictor.depth"),
    "history-zero": ("predictor.num_frames", 0, "predictor.num_frames"),
    "depth-absurd": (
        "predictor.depth",
        10**9,
        "predictor.depth: Input should be less than or equal to 256",
    ),
    "width-absurd": ("encoder.hidden_size", 3 * 10**12, "encoder.hidden_size"),
    "parameters-absurd": (
        "predictor.mlp_dim",
        65536,
        "predictor.transformer.layers.0.mlp.net.1.weight: shape",
    ),
    "parameters-over-limit": ("predictor.hidden_dim", 16384, "parameters, above the limit of "),
    "heads": ("encoder.num_attention_heads", 5, "5 heads do not divide the width 24"),
    "patch": ("encoder.patch_size", 29, "encoder.patch_size"),
    "size-unknown": ("encoder.size", "enormous", "encoder.size"),
    "activation": ("encoder.hidden_act", "relu", "hidden_act"),
    "embedder-width": (
        "action_encoder.emb_dim",
        8,
        "action_encoder.emb_dim: 8, but predictor.input_dim is 16",
    ),
    "embedder-input": (
        "action_encoder.input_dim",
        4,
        "action_encoder.patch_embed.weight: shape (10, 10, 1), but the config wants (10, 4, 1)",
    ),
    "projector-input": (
        "projector.input_dim",
        23,
        "projector.input_dim: 23, but the encoder's width is 24",
    ),
    "latents-differ": (
        "pred_proj.output_dim",
        8,
        "pred_proj.output_dim: 8, but the latents' width is 16",
    ),
}

# By code: what builds the folder, and words of the answer.
OTHERS: dict[str, dict[str, tuple[Callable[[Path], Ref], str]]] = {
    UNSAFE: {
        "pickle-in-archive": (pickled_in_archive, "system"),
        "pickle-as-value": (pickled_tensor_value, "system"),
        "pickle-allocates": (weights_bytes(pickled_bytearray), "bytearray of any"),
        "bare-pickle": (bare_pickle, "not an archive of torch.save"),
        "pickle-as-safetensors": (hidden_in_safetensors, "weights.safetensors"),
        "pickled-module": (state_edit(lambda _: nn.Linear(2, 2)), "pickled Python object"),
        "object-ckpt": (object_checkpoint, "acpc-server import lewm_object.ckpt NEW_FOLDER"),
        "json-invalid": (config_text('{"_target_": '), "not valid JSON"),
        "json-binary": (config_text(b"\xff\xfe\x00"), "not valid JSON"),
        "json-array": (config_text("[1, 2]"), "a JSON object is wanted"),
        "json-nan": (config_text('{"a": NaN}'), "NaN is not JSON"),
        "json-duplicate": (config_text('{"a": 1, "a": 2}'), "'a' is written twice"),
        "json-deep": (config_text(nested(40)), "nested deeper"),
        "json-very-deep": (config_text(nested(50_000)), "nested deeper"),
        "json-long-number": (config_text(f'{{"a": {"9" * 5000}}}'), "JSON"),
        "json-huge": (sparse("config.json", 2 << 20), "above the limit"),
        "json-empty": (config_text(""), "config.json: empty file"),
        "tensor-missing": (drop_tensor(QKV), f"{QKV}: missing"),
        "tensor-renamed": (
            state_edit(lambda s: s.update({f"net.{QKV}": s.pop(QKV)})),
            f"{QKV}: missing; the file has net.{QKV} instead",
        ),
        "git-lfs-pointer": (weights_bytes(lambda _: LFS_POINTER), "git lfs pull"),
        "git-lfs-safetensors": (safetensors_bytes(lambda _: LFS_POINTER), "git lfs pull"),
        "tensor-extra": (set_tensor("encoder.pooler.weight", torch.ones(1)), "no such tensor"),
        "tensor-shape": (set_tensor(QKV, torch.ones(3, 3)), f"{QKV}: shape"),
        "tensor-expanded": (
            set_tensor(QKV, torch.ones(1).expand(48, 16)),
            "larger than its stored data",
        ),
        "tensor-sparse": (set_tensor(QKV, torch.eye(3).to_sparse()), "dense CPU"),
        "tensor-integer": (set_tensor(QKV, torch.ones(48, 16, dtype=torch.int32)), "int32"),
        "tensor-double": (set_tensor(QKV, torch.ones(48, 16, dtype=torch.float64)), "float64"),
        "tensor-complex": (set_tensor(QKV, torch.ones(48, 16, dtype=torch.complex64)), "complex64"),
        "tensor-is-number": (set_tensor(QKV, 3.0), "a float, not a tensor"),
        "tensor-name-number": (state_edit(lambda s: s.update({7: torch.ones(1)})), "strings"),
        "nan": (poke(QKV, float("nan")), f"{QKV}: holds values"),
        "infinity": (poke("encoder.layernorm.bias", float("inf")), "not finite"),
        "negative-variance": (
            poke("projector.net.1.running_var", -1.0),
            "projector.net.1.running_var: holds a negative variance",
        ),
        "state-list": (state_edit(lambda s: list(s.values())), "holds a list"),
        "state-empty": (state_edit(lambda _: {}), "holds no tensors"),
        "both-generations": (state_edit(both_generations), "a second time"),
        "truncated": (weights_bytes(lambda data: data[: len(data) // 2]), "trunc"),
        "garbage": (weights_bytes(lambda _: b"PK garbage" * 9), "damaged archive"),
        "empty-weights": (weights_bytes(lambda _: b""), "empty file"),
        "zip-bomb": (weights_bytes(zip_bomb), "compressed"),
        "zip-overlap": (weights_bytes(overlapping_entries), "entries claim"),
        "storage-inflated": (inflated_storage, "damaged: record size"),
        "legacy-format": (legacy_format, "older than torch 1.6"),
        "weights-huge": (sparse("weights.pt", 5 << 30), "above the limit"),
        "st-header": (safetensors_bytes(huge_header), "safetensors"),
        "st-offsets": (safetensors_bytes(overlong_offsets), "safetensors"),
        "st-truncated": (safetensors_bytes(lambda data: data[:-5]), "safetensors"),
        "weights-folder": (odd_file("weights.pt", Path.mkdir), "not a regular"),
        "weights-pipe": (odd_file("weights.pt", os.mkfifo), "not a regular"),
        "config-pipe": (odd_file("config.json", os.mkfifo), "not a regular"),
    },
    DENIED: {
        "link-folder": (linked_folder, "symbolic link"),
        "link-parent": (linked_parent, "symbolic link"),
        "link-weights": (linked_file("weights.pt"), "symbolic link"),
        "link-config": (linked_file("config.json"), "symbolic link"),
    },
    ABSENT: {
        "folder-empty": (empty_folder, "config.json"),
        "folder-is-file": (plain_file, "not a folder"),
        "config-absent": (without("config.json"), "config.json"),
        "weights-absent": (without("weights.pt"), "no weights file"),
        "name-unknown": (reference("nobody"), "does not exist"),
        "weights-unknown": (reference(NAME, "weights_epoch_9.pt"), "epoch_9"),
    },
    INVALID: {
        "weights-several": (several_epochs, "weights_epoch_1.pt, weights_epoch"),
        "name-empty": (reference(""), "checkpoint.name"),
        "name-absolute": (reference("/etc"), "absolute"),
        "name-dots": (reference("../root/victim"), "'..'"),
        "name-inner-dots": (reference("victim/../victim"), "'..'"),
        "name-dot": (reference("."), "'.'"),
        "name-slash": (reference("victim//"), "checkpoint.name"),
        "name-nul": (reference("victim\0"), "unprintable"),
        "name-long": (reference("v" * 300), "longer than 255"),
        "weights-dots": (reference(NAME, "../x.pt"), "checkpoint.weights"),
        "weights-absolute": (reference(NAME, "/x.pt"), "checkpoint.weights"),
        "weights-suffix": (reference(NAME, "config.json"), "no weights file"),
    },
}

HOSTILE_FOLDERS = [
    *(
        HostileFolder(key, config_edit(path, value), UNSAFE, words)
        for key, (path, value, words) in CONFIG_EDITS.items()
    ),
    *(
        HostileFolder(key, build, code, words)
        for code, cases in OTHERS.items()
        for key, (build, words) in cases.items()
    ),
]
