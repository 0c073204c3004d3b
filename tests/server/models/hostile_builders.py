"""How to break a checkpoint folder: each function makes a builder for ``hostile_folders``."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from payload import Payload
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


class Ref(NamedTuple):
    """What the caller sends: folder below the root, and weights file or nothing."""

    name: str
    weights: str = ""


def config_edit(path: str, value: object) -> Callable[[Path], Ref]:
    """A sound folder but for one config key, ``encoder.size``, set to ``value``, or absent."""

    def build(root: Path) -> Ref:
        config = public_config()
        *steps, last = path.split(".")
        node: Any = config
        for step in steps:
            node = node[step]
        node[last] = value
        if value is DROP:
            del node[last]
        write_checkpoint(root / NAME, config, random_state_dict(public_config()))
        return Ref(NAME)

    return build


def config_text(text: str | bytes) -> Callable[[Path], Ref]:
    """Sound weights beside other bytes as config.json."""

    def build(root: Path) -> Ref:
        write_checkpoint(root / NAME)
        data = text.encode() if isinstance(text, str) else text
        (root / NAME / "config.json").write_bytes(data)
        return Ref(NAME)

    return build


def state_edit(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], Ref]:
    """A sound folder but for an edit of its state dict, or what the edit returns in its place."""

    def build(root: Path) -> Ref:
        state = random_state_dict(public_config())
        changed = edit(state)
        write_checkpoint(root / NAME, state=state if changed is None else changed)
        return Ref(NAME)

    return build


def set_tensor(name: str, value: object) -> Callable[[Path], Ref]:
    return state_edit(lambda state: state.update({name: value}))


def drop_tensor(name: str) -> Callable[[Path], Ref]:
    def edit(state: dict[str, Any]) -> None:
        del state[name]

    return state_edit(edit)


def poke(name: str, value: float) -> Callable[[Path], Ref]:
    """One element of one tensor replaced."""

    def edit(state: dict[str, Any]) -> None:
        state[name].view(-1)[0] = value

    return state_edit(edit)


def weights_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], Ref]:
    """A sound folder but for a change of the bytes of weights.pt."""

    def build(root: Path) -> Ref:
        file = write_checkpoint(root / NAME) / "weights.pt"
        file.write_bytes(change(file.read_bytes()))
        return Ref(NAME)

    return build


def safetensors_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], Ref]:
    """The same for weights.safetensors."""

    def build(root: Path) -> Ref:
        (write_checkpoint(root / NAME) / "weights.pt").unlink()
        data = safetensors.torch.save(dict(random_state_dict(public_config())))
        (root / NAME / "weights.safetensors").write_bytes(change(data))
        return Ref(NAME)

    return build


def reference(name: str, weights: str = "") -> Callable[[Path], Ref]:
    """A sound folder, asked for by another reference."""

    def build(root: Path) -> Ref:
        write_checkpoint(root / NAME)
        return Ref(name, weights)

    return build


def rewrite_archive(data: bytes, compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    """The same archive, compressed, or with other members (``data.pkl``)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        for entry in old.namelist():
            new.writestr(entry, members.get(entry.partition("/")[2], old.read(entry)))
    return buffer.getvalue()


def with_pickle(data: bytes, pickled: bytes) -> bytes:
    return rewrite_archive(data, **{"data.pkl": pickled})


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


def object_checkpoint(root: Path) -> Ref:
    (write_checkpoint(root / NAME) / "weights.pt").unlink()
    torch.save(nn.Linear(2, 2), root / NAME / "lewm_object.ckpt")
    return Ref(NAME)


def legacy_format(root: Path) -> Ref:
    write_checkpoint(root / NAME)
    torch.save(
        dict(random_state_dict(public_config())),
        root / NAME / "weights.pt",
        _use_new_zipfile_serialization=False,
    )
    return Ref(NAME)


def linked_folder(root: Path) -> Ref:
    write_checkpoint(root.parent / "outside" / NAME)
    (root / "link").symlink_to(root.parent / "outside" / NAME)
    return Ref("link")


def linked_parent(root: Path) -> Ref:
    write_checkpoint(root.parent / "outside" / NAME)
    (root / "runs").symlink_to(root.parent / "outside")
    return Ref(f"runs/{NAME}")


def linked_file(filename: str) -> Callable[[Path], Ref]:
    def build(root: Path) -> Ref:
        write_checkpoint(root / NAME)
        target = root.parent / f"outside-{filename}"
        (root / NAME / filename).rename(target)
        (root / NAME / filename).symlink_to(target)
        return Ref(NAME)

    return build


def odd_file(filename: str, make: Callable[[Path], object]) -> Callable[[Path], Ref]:
    """Something that is no regular file in the place of one."""

    def build(root: Path) -> Ref:
        write_checkpoint(root / NAME)
        (root / NAME / filename).unlink()
        make(root / NAME / filename)
        return Ref(NAME)

    return build


def sparse(filename: str, size: int) -> Callable[[Path], Ref]:
    """A file that claims gigabytes and occupies nothing."""

    def build(root: Path) -> Ref:
        write_checkpoint(root / NAME)
        os.truncate(root / NAME / filename, size)
        return Ref(NAME)

    return build


def without(filename: str) -> Callable[[Path], Ref]:
    def build(root: Path) -> Ref:
        (write_checkpoint(root / NAME) / filename).unlink()
        return Ref(NAME)

    return build


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
