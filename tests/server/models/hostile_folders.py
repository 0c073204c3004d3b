"""Checkpoint folders that are broken or malicious, how to make them, and the answer each must get.

Every case builds its folder below a checkpoint root and returns the reference a caller would send.
Payloads that come to be executed create ``root / WITNESS``.
"""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from public_checkpoint import (
    OLD_NAMES,
    public_config,
    random_state_dict,
    with_old_names,
    write_checkpoint,
)
from torch import Tensor, nn

WITNESS = "EXECUTED"
NAME = "victim"
DROP = object()
QKV = "predictor.transformer.layers.0.attn.to_qkv.weight"


class Payload:
    """Leaves a file behind when it is unpickled without restrictions."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.witness}'",)


class Ref(NamedTuple):
    """What the caller sends: folder below the root, and weights file or nothing."""

    name: str
    weights: str = ""


SOUND = Ref(NAME)


def set_at(config: Any, path: str, value: object) -> None:
    """Set the key at a dotted path of a config, or drop it."""
    *steps, last = path.split(".")
    for step in steps:
        config = config[step]
    config[last] = value
    if value is DROP:
        del config[last]


def config_edit(path: str, value: object) -> Callable[[Path], Ref]:
    """A sound folder but for one config key, ``encoder.size``, set to ``value``, or absent."""

    def build(root: Path) -> Ref:
        config = public_config()
        set_at(config, path, value)
        write_checkpoint(root / NAME, config, random_state_dict(public_config()))
        return SOUND

    return build


def changed(change: Callable[[Path], object], ref: Ref = SOUND) -> Callable[[Path], Ref]:
    """A sound folder but for a change of it."""

    def build(root: Path) -> Ref:
        change(write_checkpoint(root / NAME))
        return ref

    return build


def config_text(text: str | bytes) -> Callable[[Path], Ref]:
    data = text.encode() if isinstance(text, str) else text
    return changed(lambda folder: (folder / "config.json").write_bytes(data))


def state_edit(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], Ref]:
    """A sound folder but for an edit of its state dict, or what the edit returns in its place."""

    def build(root: Path) -> Ref:
        state = random_state_dict(public_config())
        edited = edit(state)
        write_checkpoint(root / NAME, state=state if edited is None else edited)
        return Ref(NAME)

    return build


def set_tensor(name: str, value: object) -> Callable[[Path], Ref]:
    return state_edit(lambda state: state.update({name: value}))


def drop_qkv(state: dict[str, Any]) -> None:
    del state[QKV]


def poke(name: str, value: float) -> Callable[[Path], Ref]:
    """One element of one tensor replaced."""

    def edit(state: dict[str, Any]) -> None:
        state[name].view(-1)[0] = value

    return state_edit(edit)


def weights_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], Ref]:
    """A sound folder but for a change of the bytes of weights.pt."""

    def edit(folder: Path) -> None:
        file = folder / "weights.pt"
        file.write_bytes(change(file.read_bytes()))

    return changed(edit)


def safetensors_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], Ref]:
    """The same for weights.safetensors."""

    def edit(folder: Path) -> None:
        (folder / "weights.pt").unlink()
        data = safetensors.torch.save(dict(random_state_dict(public_config())))
        (folder / "weights.safetensors").write_bytes(change(data))

    return changed(edit)


def reference(name: str, weights: str = "") -> Callable[[Path], Ref]:
    """A sound folder, asked for by another reference."""
    return changed(lambda _: None, Ref(name, weights))


def rewrite_archive(data: bytes, compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    """The same archive, compressed, or with other members (``data.pkl``)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        for entry in old.namelist():
            new.writestr(entry, members.get(entry.partition("/")[2], old.read(entry)))
    return buffer.getvalue()


def with_pickle(data: bytes, pickled: bytes) -> bytes:
    return rewrite_archive(data, **{"data.pkl": pickled})


def with_body(body: bytes) -> Callable[[bytes], bytes]:
    """The same archive around other instructions."""
    return lambda data: with_pickle(data, b"\x80\x02" + body + b".")


MADE = b"}X\x01\0\0\0actorch\nFloatTensor\nJ\0\0\x10\0\x85Rs"
# Each level holds the level below twice.
FAN = b"}" + b"".join(
    b"q%c}(X\1\0\0\0ah%cX\1\0\0\0bh%cu" % (level, level, level) for level in range(40)
)


def pickled_bytearray(data: bytes) -> bytes:
    """The same archive, whose pickle makes 64 bytes out of a number that could be any."""
    made = b"\x80\x02c__builtin__\nbytearray\nK\x40\x85R."
    return with_pickle(data, made)


def zip_bomb(data: bytes) -> bytes:
    """A few kilobytes that unpack to 64 MiB."""
    return rewrite_archive(data, zipfile.ZIP_DEFLATED, **{"data/0": bytes(64 << 20)})


def overlapping_entries(data: bytes) -> bytes:
    """Every directory entry claims to be two gigabytes long, stored."""
    start = data.index(b"PK\x01\x02")
    directory = bytearray(data)
    huge = struct.pack("<II", 2_000_000_000, 2_000_000_000)
    while directory[start : start + 4] == b"PK\x01\x02":
        directory[start + 20 : start + 28] = huge
        lengths = struct.unpack("<HHH", directory[start + 28 : start + 34])
        start += 46 + sum(lengths)
    return bytes(directory)


def inflated_storage(root: Path) -> Ref:
    """A pickle that claims a million values where its record holds four."""
    file = write_checkpoint(root / NAME, state={"a": torch.ones(4)}) / "weights.pt"
    with zipfile.ZipFile(file) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        pickled = archive.read(entry)
    million = b"J" + struct.pack("<i", 1 << 20)
    pickled = pickled.replace(b"K\x04tq", million + b"tq").replace(b"K\x04\x85", million + b"\x85")
    file.write_bytes(with_pickle(file.read_bytes(), pickled))
    return Ref(NAME)


def pickled_in_archive(root: Path) -> Ref:
    """A torch archive whose pickle calls os.system."""
    payload = pickle.dumps({"state_dict": Payload(root / WITNESS)}, protocol=2)
    return weights_bytes(lambda data: with_pickle(data, payload))(root)


def pickled_tensor_value(root: Path) -> Ref:
    """A full state dict, one value of which runs a command."""
    return set_tensor("bonus", Payload(root / WITNESS))(root)


def bare_pickle(root: Path) -> Ref:
    return weights_bytes(lambda _: pickle.dumps(Payload(root / WITNESS)))(root)


def hidden_in_safetensors(root: Path) -> Ref:
    """A pickle under the suffix of the safe format."""
    return safetensors_bytes(lambda _: pickle.dumps(Payload(root / WITNESS)))(root)


def object_checkpoint(folder: Path) -> None:
    (folder / "weights.pt").unlink()
    torch.save(nn.Linear(2, 2), folder / "lewm_object.ckpt")


def legacy_format(folder: Path) -> None:
    state = dict(random_state_dict(public_config()))
    torch.save(state, folder / "weights.pt", _use_new_zipfile_serialization=False)


def linked_folder(root: Path) -> Ref:
    write_checkpoint(root.parent / "outside" / NAME)
    (root / "link").symlink_to(root.parent / "outside" / NAME)
    return Ref("link")


def linked_parent(root: Path) -> Ref:
    write_checkpoint(root.parent / "outside" / NAME)
    (root / "runs").symlink_to(root.parent / "outside")
    return Ref(f"runs/{NAME}")


def linked_file(filename: str) -> Callable[[Path], Ref]:
    def link(folder: Path) -> None:
        target = folder.parents[1] / f"outside-{filename}"
        (folder / filename).rename(target)
        (folder / filename).symlink_to(target)

    return changed(link)


def odd_file(filename: str, make: Callable[[Path], object]) -> Callable[[Path], Ref]:
    """Something that is no regular file in the place of one."""

    def replace(folder: Path) -> None:
        (folder / filename).unlink()
        make(folder / filename)

    return changed(replace)


def sparse(filename: str, size: int) -> Callable[[Path], Ref]:
    """A file that claims gigabytes and occupies nothing."""
    return changed(lambda folder: os.truncate(folder / filename, size))


def holes(root: Path, share: float = 0.0) -> Ref:
    """One tensor of which a share is on the disk; of a GiB where none is."""
    (write_checkpoint(root / NAME) / "weights.pt").unlink()
    size = 2**22 if share else 2**30
    told = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    header = json.dumps({QKV: told}).encode()
    with (root / NAME / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.write(bytes(int(share * size)))
        file.truncate(8 + len(header) + size)
    return Ref(NAME)


def without(filename: str) -> Callable[[Path], Ref]:
    return changed(lambda folder: (folder / filename).unlink())


def several_epochs(root: Path) -> Ref:
    for epoch in (1, 2):
        write_checkpoint(root / NAME, weights=f"weights_epoch_{epoch}.pt", seed=epoch)
    return Ref(NAME)


def empty_folder(root: Path) -> Ref:
    (root / NAME).mkdir()
    return Ref(NAME)


def plain_file(root: Path) -> Ref:
    (root / NAME).write_text("no folder")
    return Ref(NAME)


def both_generations(state: dict[str, Tensor]) -> None:
    old = with_old_names(dict(state))
    part = next(iter(OLD_NAMES.values()))
    state.update({name: old[name] for name in old if part in name})


def huge_header(data: bytes) -> bytes:
    return struct.pack("<Q", 1 << 60) + data[8:]


def overlong_offsets(data: bytes) -> bytes:
    """A header whose offsets run past the end of the file."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    next(iter(header.values()))["data_offsets"][1] += 1 << 40
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


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
        "pickle-allocates": (weights_bytes(pickled_bytearray), "object (__builtin__.bytearray)"),
        "pickle-makes-tensor": (weights_bytes(with_body(MADE)), "object (torch.FloatTensor)"),
        "pickle-deep-key": (
            weights_bytes(with_body(b"})" + b"\x85" * 300_000 + b"Ns")),
            "ended the process that described it",
        ),
        "pickle-memory": (
            weights_bytes(with_body(b"Nr\xff\xff\xff\x7f")),
            "asked for more than 1024 MiB or 10 s",
        ),
        "pickle-shared": (weights_bytes(with_body(FAN)), "more than 100000 modules and dicts"),
        "bare-pickle": (bare_pickle, "not an archive of torch.save"),
        "pickle-as-safetensors": (hidden_in_safetensors, "weights.safetensors"),
        "pickled-module": (state_edit(lambda _: nn.Linear(2, 2)), "pickled Python object"),
        "object-ckpt": (
            changed(object_checkpoint),
            "acpc-server import lewm_object.ckpt NEW_FOLDER",
        ),
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
        "tensor-missing": (state_edit(drop_qkv), f"{QKV}: missing"),
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
        "zip-overlap": (weights_bytes(overlapping_entries), "members that share bytes"),
        "storage-inflated": (inflated_storage, "not as long as its tensors say"),
        "legacy-format": (changed(legacy_format), "older than torch 1.6"),
        "weights-huge": (sparse("weights.pt", 5 << 30), "above the limit"),
        "st-holes": (holes, "bytes are on disk, the others are holes"),
        "st-some-holes": (partial(holes, share=0.4), "less than 50% of its 419"),
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
