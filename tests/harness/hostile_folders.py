"""Checkpoint folders that are broken or malicious, how to make them, and the answer each must get.

Every case builds its folder below a checkpoint root and returns the reference a caller would send.
Payloads that come to be executed create ``WITNESS`` in the working directory.
"""

import io
import json
import os
import pickle
import shutil
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
VARIANCE = "projector.net.1.running_var"


class Payload:
    """Leaves a file behind when it is unpickled without restrictions."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {WITNESS}",)


class Ref(NamedTuple):
    """What the caller sends: folder below the root, and weights file or nothing."""

    name: str = NAME
    weights: str = ""


Build = Callable[[Path], Ref]
Bytes = Callable[[bytes], bytes]
SOUND = Ref()


def set_at(config: Any, path: str, value: object) -> None:
    """Set the key at a dotted path of a config, or drop it."""
    *steps, last = path.split(".")
    for step in steps:
        config = config[step]
    config[last] = value
    if value is DROP:
        del config[last]


def config_edit(path: str, value: object) -> Build:
    """A sound folder but for one config key, ``encoder.size``, set to ``value``, or absent."""

    def build(root: Path) -> Ref:
        config = public_config()
        set_at(config, path, value)
        write_checkpoint(root / NAME, config, random_state_dict(public_config()))
        return SOUND

    return build


def changed(change: Callable[[Path], object], ref: Ref = SOUND) -> Build:
    """A sound folder but for a change of it, or asked for by another reference."""

    def build(root: Path) -> Ref:
        change(write_checkpoint(root / NAME))
        return ref

    return build


def asked(name: str = NAME, weights: str = "") -> Build:
    return changed(lambda _: None, Ref(name, weights))


def config_text(text: str | bytes) -> Build:
    data = text.encode() if isinstance(text, str) else text
    return changed(lambda folder: (folder / "config.json").write_bytes(data))


def stored(make: Callable[[dict[str, Any]], object]) -> Build:
    """A sound folder but for what is stored in place of its state dict."""

    def build(root: Path) -> Ref:
        write_checkpoint(root / NAME, state=make(random_state_dict(public_config())))
        return SOUND

    return build


def tensor(value: object, name: str = QKV) -> Build:
    return stored(lambda state: {**state, name: value})


def poke(value: float, name: str = QKV) -> Build:
    """One element of one tensor replaced."""

    def poked(state: dict[str, Any]) -> dict[str, Any]:
        state[name].view(-1)[0] = value
        return state

    return stored(poked)


def weights_bytes(change: Bytes, state: object = None) -> Build:
    """A sound folder but for a change of the bytes of weights.pt."""

    def build(root: Path) -> Ref:
        file = write_checkpoint(root / NAME, state=state) / "weights.pt"
        file.write_bytes(change(file.read_bytes()))
        return SOUND

    return build


def safetensors_bytes(change: Bytes) -> Build:
    """The same for weights.safetensors."""

    def edit(folder: Path) -> None:
        (folder / "weights.pt").unlink()
        data = safetensors.torch.save(dict(random_state_dict(public_config())))
        (folder / "weights.safetensors").write_bytes(change(data))

    return changed(edit)


def rewritten(data: bytes, compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    """The same archive, compressed, or with other members (``data.pkl``)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        for entry in old.namelist():
            new.writestr(entry, members.get(entry.partition("/")[2], old.read(entry)))
    return buffer.getvalue()


def pickled(instructions: bytes) -> Build:
    """A sound folder but for the pickle in its archive."""
    return weights_bytes(lambda data: rewritten(data, **{"data.pkl": instructions}))


def body(instructions: bytes) -> Build:
    return pickled(b"\x80\x02" + instructions + b".")


MADE = b"}X\x01\0\0\0actorch\nFloatTensor\nJ\0\0\x10\0\x85Rs"
# Each level holds the level below twice.
FAN = b"}" + b"".join(
    b"q%c}(X\1\0\0\0ah%cX\1\0\0\0bh%cu" % (level, level, level) for level in range(40)
)


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


def inflated_storage(data: bytes) -> bytes:
    """A pickle that claims a million values where its record holds four."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        told = archive.read(entry)
    million = b"J" + struct.pack("<i", 1 << 20)
    told = told.replace(b"K\x04tq", million + b"tq").replace(b"K\x04\x85", million + b"\x85")
    return rewritten(data, **{"data.pkl": told})


def object_checkpoint(folder: Path) -> None:
    (folder / "weights.pt").unlink()
    torch.save(nn.Linear(2, 2), folder / "lewm_object.ckpt")


def legacy_format(folder: Path) -> None:
    state = dict(random_state_dict(public_config()))
    torch.save(state, folder / "weights.pt", _use_new_zipfile_serialization=False)


def linked(link: str, target: str, name: str) -> Build:
    """A link below the root to a sound folder beside the root."""

    def build(root: Path) -> Ref:
        write_checkpoint(root.parent / "outside" / NAME)
        (root / link).symlink_to(root.parent / target)
        return Ref(name)

    return build


def linked_file(filename: str) -> Build:
    def link(folder: Path) -> None:
        target = folder.parents[1] / f"outside-{filename}"
        (folder / filename).rename(target)
        (folder / filename).symlink_to(target)

    return changed(link)


def replaced(filename: str, make: Callable[[Path], object] = lambda _: None) -> Build:
    """Something that is no regular file in the place of one, or nothing."""

    def replace(folder: Path) -> None:
        (folder / filename).unlink()
        make(folder / filename)

    return changed(replace)


def sparse(filename: str, size: int) -> Build:
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
    return SOUND


def several_epochs(folder: Path) -> None:
    shutil.copy(folder / "weights.pt", folder / "weights_epoch_2.pt")
    (folder / "weights.pt").rename(folder / "weights_epoch_1.pt")


def no_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file")


def both_generations(state: dict[str, Tensor]) -> dict[str, Tensor]:
    part = next(iter(OLD_NAMES.values()))
    return state | {name: old for name, old in with_old_names(state).items() if part in name}


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
    build: Build
    code: str
    fragment: str


EVIL = {"_target_": "os.system", "command": f"touch {WITNESS}"}
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 72351744\n"

# Edits of config.json: the key, its value (or DROP it), and words of the answer.
CONFIG_EDITS: list[tuple[str, object, str]] = [
    ("_target_", "os.system", "_target_"),
    ("_target_", ["a"], "_target_"),
    ("_target_", DROP, "_target_"),
    ("encoder._target_", "os.system", "encoder._target_: 'os.system' is not a known target"),
    ("projector.norm_fn", {**EVIL, "_partial_": True}, "projector.norm_fn._target_: 'os.system'"),
    ("predictor.warm_up", EVIL, "predictor.warm_up: unknown key"),
    ("predictor.depth", EVIL, "predictor.depth"),
    ("encoder._args_", [1], "encoder._args_"),
    ("predictor.num_frames", DROP, "predictor.num_frames: required"),
    ("encoder", DROP, "encoder: required"),
    ("encoder", [], "encoder"),
    ("predictor.depth", "2", "predictor.depth"),
    ("predictor.depth", True, "predictor.depth"),
    ("predictor.num_frames", 0, "predictor.num_frames"),
    ("predictor.depth", 10**9, "predictor.depth: Input should be less than or equal to 256"),
    ("encoder.hidden_size", 3 * 10**12, "encoder.hidden_size"),
    ("predictor.mlp_dim", 65536, "predictor.transformer.layers.0.mlp.net.1.weight: shape"),
    ("predictor.hidden_dim", 16384, "parameters, above the limit of "),
    ("encoder.num_attention_heads", 5, "5 heads do not divide the width 24"),
    ("encoder.patch_size", 29, "encoder.patch_size"),
    ("encoder.size", "enormous", "encoder.size"),
    ("encoder.hidden_act", "relu", "hidden_act"),
    ("action_encoder.emb_dim", 8, "action_encoder.emb_dim: 8, but predictor.input_dim is 16"),
    ("action_encoder.input_dim", 4, "patch_embed.weight: shape (10, 10, 1), but the config wants "
     "(10, 4, 1)"),
    ("projector.input_dim", 23, "projector.input_dim: 23, but the encoder's width is 24"),
    ("pred_proj.output_dim", 8, "pred_proj.output_dim: 8, but the latents' width is 16"),
]  # fmt: skip

# By code: what builds the folder, and words of the answer.
OTHERS: dict[str, dict[str, tuple[Build, str]]] = {
    "FAILED_PRECONDITION": {
        "pickle-in-archive": (pickled(pickle.dumps({"state_dict": Payload()}, 2)), "system"),
        "pickle-as-value": (tensor(Payload(), "bonus"), "system"),
        # 64 bytes out of a number that could be any.
        "pickle-allocates": (body(b"c__builtin__\nbytearray\nK\x40\x85R"),
            "object (__builtin__.bytearray)"),
        "pickle-makes-tensor": (body(MADE), "object (torch.FloatTensor)"),
        "pickle-deep-key": (body(b"})" + b"\x85" * 300_000 + b"Ns"),
            "ended the process that described it"),
        "pickle-memory": (body(b"Nr\xff\xff\xff\x7f"), "asked for more than 1024 MiB or 10 s"),
        "pickle-shared": (body(FAN), "more than 100000 modules and dicts"),
        "bare-pickle": (weights_bytes(lambda _: pickle.dumps(Payload())),
            "not an archive of torch.save"),
        "pickle-as-safetensors": (safetensors_bytes(lambda _: pickle.dumps(Payload())),
            "weights.safetensors"),
        "pickled-module": (stored(lambda _: nn.Linear(2, 2)), "pickled Python object"),
        "object-ckpt": (changed(object_checkpoint),
            "acpc-server import lewm_object.ckpt NEW_FOLDER"),
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
        "tensor-missing": (stored(lambda s: {x: s[x] for x in s if x != QKV}), f"{QKV}: missing"),
        "tensor-renamed": (stored(lambda s: {f"net.{x}" if x == QKV else x: s[x] for x in s}),
            f"{QKV}: missing; the file has net.{QKV} instead"),
        "git-lfs-pointer": (weights_bytes(lambda _: LFS_POINTER), "git lfs pull"),
        "git-lfs-safetensors": (safetensors_bytes(lambda _: LFS_POINTER), "git lfs pull"),
        "tensor-extra": (tensor(torch.ones(1), "encoder.pooler.weight"), "no such tensor"),
        "tensor-shape": (tensor(torch.ones(3, 3)), f"{QKV}: shape"),
        "tensor-expanded": (tensor(torch.ones(1).expand(48, 16)), "larger than its stored data"),
        "tensor-sparse": (tensor(torch.eye(3).to_sparse()), "dense CPU"),
        "tensor-integer": (tensor(torch.ones(48, 16, dtype=torch.int32)), "int32"),
        "tensor-double": (tensor(torch.ones(48, 16, dtype=torch.float64)), "float64"),
        "tensor-complex": (tensor(torch.ones(48, 16, dtype=torch.complex64)), "complex64"),
        "tensor-is-number": (tensor(3.0), "a float, not a tensor"),
        "tensor-name-number": (stored(lambda s: {**s, 7: torch.ones(1)}), "strings"),
        "nan": (poke(float("nan")), f"{QKV}: holds values"),
        "infinity": (poke(float("inf"), "encoder.layernorm.bias"), "not finite"),
        "negative-variance": (poke(-1.0, VARIANCE), f"{VARIANCE}: holds a negative variance"),
        "state-list": (stored(lambda s: list(s.values())), "holds a list"),
        "state-empty": (stored(lambda _: {}), "holds no tensors"),
        "both-generations": (stored(both_generations), "a second time"),
        "truncated": (weights_bytes(lambda data: data[: len(data) // 2]), "trunc"),
        "garbage": (weights_bytes(lambda _: b"PK garbage" * 9), "damaged archive"),
        "empty-weights": (weights_bytes(lambda _: b""), "empty file"),
        # A few kilobytes that unpack to 64 MiB.
        "zip-bomb": (weights_bytes(
            lambda data: rewritten(data, zipfile.ZIP_DEFLATED, **{"data/0": bytes(64 << 20)})
        ), "compressed"),
        "zip-overlap": (weights_bytes(overlapping_entries), "members that share bytes"),
        "storage-inflated": (weights_bytes(inflated_storage, {"a": torch.ones(4)}),
            "not as long as its tensors say"),
        "legacy-format": (changed(legacy_format), "older than torch 1.6"),
        "weights-huge": (sparse("weights.pt", 5 << 30), "above the limit"),
        "st-holes": (holes, "bytes are on disk, the others are holes"),
        "st-some-holes": (partial(holes, share=0.4), "less than 50% of its 419"),
        "st-header": (safetensors_bytes(lambda data: struct.pack("<Q", 1 << 60) + data[8:]),
            "safetensors"),
        "st-offsets": (safetensors_bytes(overlong_offsets), "safetensors"),
        "st-truncated": (safetensors_bytes(lambda data: data[:-5]), "safetensors"),
        "weights-folder": (replaced("weights.pt", Path.mkdir), "not a regular"),
        "weights-pipe": (replaced("weights.pt", os.mkfifo), "not a regular"),
        "config-pipe": (replaced("config.json", os.mkfifo), "not a regular"),
    },
    "PERMISSION_DENIED": {
        "link-folder": (linked("link", f"outside/{NAME}", "link"), "symbolic link"),
        "link-parent": (linked("runs", "outside", f"runs/{NAME}"), "symbolic link"),
        "link-weights": (linked_file("weights.pt"), "symbolic link"),
        "link-config": (linked_file("config.json"), "symbolic link"),
    },
    "NOT_FOUND": {
        "folder-is-file": (changed(no_folder), "not a folder"),
        "config-absent": (replaced("config.json"), "config.json"),
        "weights-absent": (replaced("weights.pt"), "no weights file"),
        "name-unknown": (asked("nobody"), "does not exist"),
        "weights-unknown": (asked(weights="weights_epoch_9.pt"), "epoch_9"),
    },
    "INVALID_ARGUMENT": {
        "weights-several": (changed(several_epochs), "weights_epoch_1.pt, weights_epoch"),
        "name-empty": (asked(""), "checkpoint.name"),
        "name-absolute": (asked("/etc"), "absolute"),
        "name-dots": (asked("../root/victim"), "'..'"),
        "name-inner-dots": (asked("victim/../victim"), "'..'"),
        "name-dot": (asked("."), "'.'"),
        "name-slash": (asked("victim//"), "checkpoint.name"),
        "name-nul": (asked("victim\0"), "unprintable"),
        "name-long": (asked("v" * 300), "longer than 255"),
        "weights-dots": (asked(weights="../x.pt"), "checkpoint.weights"),
        "weights-absolute": (asked(weights="/x.pt"), "checkpoint.weights"),
        "weights-suffix": (asked(weights="config.json"), "no weights file"),
    },
}  # fmt: skip

HOSTILE_FOLDERS = [
    *(
        HostileFolder(f"{number}-{path}", config_edit(path, value), "FAILED_PRECONDITION", words)
        for number, (path, value, words) in enumerate(CONFIG_EDITS)
    ),
    *(
        HostileFolder(key, build, code, words)
        for code, cases in OTHERS.items()
        for key, (build, words) in cases.items()
    ),
]
