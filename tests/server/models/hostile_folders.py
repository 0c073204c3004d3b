"""Checkpoint folders that are broken or malicious, and the answer each must get.

Every case builds its folder below a checkpoint root and returns the reference a caller would send.
Payloads that come to be executed create ``root / WITNESS``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from hostile_builders import (
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
UNSAFE = "FAILED_PRECONDITION"
INVALID = "INVALID_ARGUMENT"
DENIED = "PERMISSION_DENIED"
ABSENT = "NOT_FOUND"

HOSTILE_FOLDERS = [
    # Code in the weights.
    HostileFolder("pickle-in-archive", pickled_in_archive, UNSAFE, "system"),
    HostileFolder("pickle-as-value", pickled_tensor_value, UNSAFE, "system"),
    HostileFolder("pickle-allocates", weights_bytes(pickled_bytearray), UNSAFE, "bytearray of any"),
    HostileFolder("bare-pickle", bare_pickle, UNSAFE, "not an archive of torch.save"),
    HostileFolder("pickle-as-safetensors", hidden_in_safetensors, UNSAFE, "weights.safetensors"),
    HostileFolder(
        "pickled-module", state_edit(lambda _: nn.Linear(2, 2)), UNSAFE, "pickled Python object"
    ),
    HostileFolder(
        "object-ckpt", object_checkpoint, UNSAFE, "acpc-server import lewm_object.ckpt NEW_FOLDER"
    ),
    # Code in the config.
    HostileFolder("target-model", config_edit("_target_", value="os.system"), UNSAFE, "_target_"),
    HostileFolder("target-unhashable", config_edit("_target_", value=["a"]), UNSAFE, "_target_"),
    HostileFolder("target-absent", config_edit(drop="_target_"), UNSAFE, "_target_"),
    HostileFolder(
        "target-encoder",
        config_edit("encoder", "_target_", value="os.system"),
        UNSAFE,
        "encoder._target_: 'os.system' is not a known target",
    ),
    HostileFolder(
        "target-norm",
        config_edit("projector", "norm_fn", value={**EVIL, "_partial_": True}),
        UNSAFE,
        "projector.norm_fn._target_: 'os.system'",
    ),
    HostileFolder(
        "target-extra",
        config_edit("predictor", "warm_up", value=EVIL),
        UNSAFE,
        "predictor.warm_up: unknown key",
    ),
    HostileFolder(
        "target-value", config_edit("predictor", "depth", value=EVIL), UNSAFE, "predictor.depth"
    ),
    HostileFolder(
        "hydra-args", config_edit("encoder", "_args_", value=[1]), UNSAFE, "encoder._args_"
    ),
    # Config text.
    HostileFolder("json-invalid", config_text('{"_target_": '), UNSAFE, "not valid JSON"),
    HostileFolder("json-binary", config_text(b"\xff\xfe\x00"), UNSAFE, "not valid JSON"),
    HostileFolder("json-array", config_text("[1, 2]"), UNSAFE, "a JSON object is wanted"),
    HostileFolder("json-nan", config_text('{"a": NaN}'), UNSAFE, "NaN is not JSON"),
    HostileFolder(
        "json-duplicate", config_text('{"a": 1, "a": 2}'), UNSAFE, "'a' is written twice"
    ),
    HostileFolder("json-deep", config_text(nested(40)), UNSAFE, "nested deeper"),
    HostileFolder("json-very-deep", config_text(nested(50_000)), UNSAFE, "nested deeper"),
    HostileFolder("json-long-number", config_text(f'{{"a": {"9" * 5000}}}'), UNSAFE, "JSON"),
    HostileFolder("json-huge", sparse("config.json", 2 << 20), UNSAFE, "above the limit"),
    HostileFolder("json-empty", config_text(""), UNSAFE, "config.json: empty file"),
    # Config values.
    HostileFolder(
        "key-missing",
        config_edit("predictor", drop="num_frames"),
        UNSAFE,
        "predictor.num_frames: required",
    ),
    HostileFolder("part-missing", config_edit(drop="encoder"), UNSAFE, "encoder: required"),
    HostileFolder("part-list", config_edit("encoder", value=[]), UNSAFE, "encoder"),
    HostileFolder(
        "number-as-text", config_edit("predictor", "depth", value="2"), UNSAFE, "predictor.depth"
    ),
    HostileFolder(
        "number-as-bool", config_edit("predictor", "depth", value=True), UNSAFE, "predictor.depth"
    ),
    HostileFolder(
        "history-zero",
        config_edit("predictor", "num_frames", value=0),
        UNSAFE,
        "predictor.num_frames",
    ),
    HostileFolder(
        "depth-absurd",
        config_edit("predictor", "depth", value=10**9),
        UNSAFE,
        "predictor.depth: Input should be less than or equal to 256",
    ),
    HostileFolder(
        "width-absurd",
        config_edit("encoder", "hidden_size", value=3 * 10**12),
        UNSAFE,
        "encoder.hidden_size",
    ),
    HostileFolder(
        "parameters-absurd",
        config_edit("predictor", "mlp_dim", value=65536),
        UNSAFE,
        "predictor.transformer.layers.0.mlp.net.1.weight: shape",
    ),
    HostileFolder(
        "parameters-over-limit",
        config_edit("predictor", "hidden_dim", value=16384),
        UNSAFE,
        "parameters, above the limit of ",
    ),
    HostileFolder(
        "heads",
        config_edit("encoder", "num_attention_heads", value=5),
        UNSAFE,
        "5 heads do not divide the width 24",
    ),
    HostileFolder(
        "patch", config_edit("encoder", "patch_size", value=29), UNSAFE, "encoder.patch_size"
    ),
    HostileFolder(
        "size-unknown", config_edit("encoder", "size", value="enormous"), UNSAFE, "encoder.size"
    ),
    HostileFolder(
        "activation", config_edit("encoder", "hidden_act", value="relu"), UNSAFE, "hidden_act"
    ),
    HostileFolder(
        "embedder-width",
        config_edit("action_encoder", "emb_dim", value=8),
        UNSAFE,
        "action_encoder.emb_dim: 8, but predictor.input_dim is 16",
    ),
    HostileFolder(
        "embedder-input",
        config_edit("action_encoder", "input_dim", value=4),
        UNSAFE,
        "action_encoder.patch_embed.weight: shape (10, 10, 1), but the config wants (10, 4, 1)",
    ),
    HostileFolder(
        "projector-input",
        config_edit("projector", "input_dim", value=23),
        UNSAFE,
        "projector.input_dim: 23, but the encoder's width is 24",
    ),
    HostileFolder(
        "latents-differ",
        config_edit("pred_proj", "output_dim", value=8),
        UNSAFE,
        "pred_proj.output_dim: 8, but the latents' width is 16",
    ),
    # Tensors.
    HostileFolder("tensor-missing", drop_tensor(QKV), UNSAFE, f"{QKV}: missing"),
    HostileFolder(
        "tensor-extra", set_tensor("encoder.pooler.weight", torch.ones(1)), UNSAFE, "no such tensor"
    ),
    HostileFolder("tensor-shape", set_tensor(QKV, torch.ones(3, 3)), UNSAFE, f"{QKV}: shape"),
    HostileFolder(
        "tensor-expanded",
        set_tensor(QKV, torch.ones(1).expand(48, 16)),
        UNSAFE,
        "larger than its stored data",
    ),
    HostileFolder("tensor-sparse", set_tensor(QKV, torch.eye(3).to_sparse()), UNSAFE, "dense CPU"),
    HostileFolder(
        "tensor-integer", set_tensor(QKV, torch.ones(48, 16, dtype=torch.int32)), UNSAFE, "int32"
    ),
    HostileFolder(
        "tensor-double", set_tensor(QKV, torch.ones(48, 16, dtype=torch.float64)), UNSAFE, "float64"
    ),
    HostileFolder(
        "tensor-complex",
        set_tensor(QKV, torch.ones(48, 16, dtype=torch.complex64)),
        UNSAFE,
        "complex64",
    ),
    HostileFolder("tensor-is-number", set_tensor(QKV, 3.0), UNSAFE, "a float, not a tensor"),
    HostileFolder(
        "tensor-name-number", state_edit(lambda s: s.update({7: torch.ones(1)})), UNSAFE, "strings"
    ),
    HostileFolder("nan", poke(QKV, float("nan")), UNSAFE, f"{QKV}: holds values"),
    HostileFolder("infinity", poke("encoder.layernorm.bias", float("inf")), UNSAFE, "not finite"),
    HostileFolder(
        "negative-variance",
        poke("projector.net.1.running_var", -1.0),
        UNSAFE,
        "projector.net.1.running_var: holds a negative variance",
    ),
    HostileFolder("state-list", state_edit(lambda s: list(s.values())), UNSAFE, "holds a list"),
    HostileFolder("state-empty", state_edit(lambda _: {}), UNSAFE, "holds no tensors"),
    HostileFolder("both-generations", state_edit(both_generations), UNSAFE, "a second time"),
    # Containers.
    HostileFolder("truncated", weights_bytes(lambda data: data[: len(data) // 2]), UNSAFE, "trunc"),
    HostileFolder("garbage", weights_bytes(lambda _: b"PK garbage" * 9), UNSAFE, "damaged archive"),
    HostileFolder("empty-weights", weights_bytes(lambda _: b""), UNSAFE, "empty file"),
    HostileFolder("zip-bomb", weights_bytes(zip_bomb), UNSAFE, "compressed"),
    HostileFolder("zip-overlap", weights_bytes(overlapping_entries), UNSAFE, "entries claim"),
    HostileFolder("storage-inflated", inflated_storage, UNSAFE, "damaged: record size"),
    HostileFolder("legacy-format", legacy_format, UNSAFE, "older than torch 1.6"),
    HostileFolder("weights-huge", sparse("weights.pt", 5 << 30), UNSAFE, "above the limit"),
    HostileFolder("st-header", safetensors_bytes(huge_header), UNSAFE, "safetensors"),
    HostileFolder("st-offsets", safetensors_bytes(overlong_offsets), UNSAFE, "safetensors"),
    HostileFolder("st-truncated", safetensors_bytes(lambda data: data[:-5]), UNSAFE, "safetensors"),
    # The file system.
    HostileFolder("link-folder", linked_folder, DENIED, "symbolic link"),
    HostileFolder("link-parent", linked_parent, DENIED, "symbolic link"),
    HostileFolder("link-weights", linked_file("weights.pt"), DENIED, "symbolic link"),
    HostileFolder("link-config", linked_file("config.json"), DENIED, "symbolic link"),
    HostileFolder("weights-folder", odd_file("weights.pt", Path.mkdir), UNSAFE, "not a regular"),
    HostileFolder("weights-pipe", odd_file("weights.pt", os.mkfifo), UNSAFE, "not a regular"),
    HostileFolder("config-pipe", odd_file("config.json", os.mkfifo), UNSAFE, "not a regular"),
    HostileFolder("folder-empty", empty_folder, ABSENT, "config.json"),
    HostileFolder("folder-is-file", plain_file, ABSENT, "not a folder"),
    HostileFolder("config-absent", without("config.json"), ABSENT, "config.json"),
    HostileFolder("weights-absent", without("weights.pt"), ABSENT, "no weights file"),
    HostileFolder("weights-several", several_epochs, INVALID, "weights_epoch_1.pt, weights_epoch"),
    # References.
    HostileFolder("name-unknown", reference("nobody"), ABSENT, "does not exist"),
    HostileFolder("name-empty", reference(""), INVALID, "checkpoint.name"),
    HostileFolder("name-absolute", reference("/etc"), INVALID, "absolute"),
    HostileFolder("name-dots", reference("../root/victim"), INVALID, "'..'"),
    HostileFolder("name-inner-dots", reference("victim/../victim"), INVALID, "'..'"),
    HostileFolder("name-dot", reference("."), INVALID, "'.'"),
    HostileFolder("name-slash", reference("victim//"), INVALID, "checkpoint.name"),
    HostileFolder("name-nul", reference("victim\0"), INVALID, "unprintable"),
    HostileFolder("name-long", reference("v" * 300), INVALID, "longer than 255"),
    HostileFolder("weights-unknown", reference(NAME, "weights_epoch_9.pt"), ABSENT, "epoch_9"),
    HostileFolder("weights-dots", reference(NAME, "../x.pt"), INVALID, "checkpoint.weights"),
    HostileFolder("weights-absolute", reference(NAME, "/x.pt"), INVALID, "checkpoint.weights"),
    HostileFolder("weights-suffix", reference(NAME, "config.json"), INVALID, "no weights file"),
]
