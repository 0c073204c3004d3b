"""Broken and hostile checkpoint folders, and a host that runs short of memory or files."""

import errno
import os
import random
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from acpc_server.errors import HostShortage, UnsafeCheckpoint
from acpc_server.models import CheckpointLimits, load_checkpoint
from hostile_folders import HOSTILE_FOLDERS, NAME, WITNESS
from public_checkpoint import public_config, random_state_dict, write_checkpoint

CPU = torch.device("cpu")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def test_cases_have_their_own_names() -> None:
    assert len({case.id for case in HOSTILE_FOLDERS}) == len(HOSTILE_FOLDERS) >= 30


def test_the_payload_is_live(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickles of the table do run when read without care, or the table would prove nothing."""
    monkeypatch.chdir(root)
    case = next(case for case in HOSTILE_FOLDERS if case.id == "pickle-in-archive")
    case.build(root)
    torch.load(root / NAME / "weights.pt", weights_only=False)
    assert (root / WITNESS).exists()


def test_limits_are_the_callers(root: Path) -> None:
    write_checkpoint(root / NAME)
    for limits, fragment in (
        (CheckpointLimits(config_bytes=100), "config.json"),
        (CheckpointLimits(weights_bytes=1000), "weights.pt"),
    ):
        with pytest.raises(UnsafeCheckpoint, match=fragment):
            load_checkpoint(root, NAME, device=CPU, limits=limits)


def test_no_memory_for_what_a_config_asks(root: Path) -> None:
    """A config of 17 billion parameters costs no more than the small file beside it."""
    config = public_config()
    config["encoder"] |= {"hidden_size": 16384, "num_attention_heads": 1, "num_hidden_layers": 16}
    config["projector"]["input_dim"] = 16384
    write_checkpoint(root / NAME, config, random_state_dict(public_config()))

    def refused() -> None:
        with pytest.raises(UnsafeCheckpoint, match="parameters, above the limit"):
            load_checkpoint(root, NAME, device=CPU)

    refused()  # what the first time imports is more than any file
    tracemalloc.start()
    try:
        refused()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def pretended(filename: str) -> bytes:
    """The first bytes of a file that looks like what its name says, and says it is large."""
    if filename.endswith(".pt"):
        return b"PK\x03\x04"
    header = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize("filename", ["weights.pt", "weights.safetensors"])
@pytest.mark.parametrize("looks_right", [False, True])
def test_a_large_file_is_refused_by_its_ends(root: Path, filename: str, looks_right: bool) -> None:
    """Nothing of the hole between them is read, let alone hashed."""
    folder = write_checkpoint(root / NAME)
    (folder / "weights.pt").unlink()
    path = folder / filename
    path.write_bytes(pretended(filename) if looks_right else b"")
    os.truncate(path, 2**30)
    tracemalloc.start()
    try:
        with pytest.raises(UnsafeCheckpoint, match=filename) as caught:
            load_checkpoint(root, NAME, device=CPU)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.reason == "CHECKPOINT_WEIGHTS_REFUSED"
    assert peak < 2**26


@pytest.mark.parametrize("filename", ["weights.pt", "config.json"])
def test_any_damaged_byte_is_refused_or_harmless(root: Path, filename: str) -> None:
    file = write_checkpoint(root / NAME) / filename
    sound = file.read_bytes()
    rng = random.Random(5)
    heads = (0, max(0, len(sound) - 4000))
    refused = 0
    for _ in range(60):
        damaged = bytearray(sound)
        for _ in range(rng.randint(1, 6)):
            damaged[(rng.choice(heads) + rng.randrange(4000)) % len(damaged)] = rng.randrange(256)
        file.write_bytes(damaged[: len(damaged) - rng.choice((0, 0, 0, 7))])
        try:
            load_checkpoint(root, NAME, device=CPU)
        except UnsafeCheckpoint:
            refused += 1
    assert refused > 12


def raising(error: Exception) -> Callable[..., object]:
    def raise_it(*_: object, **__: object) -> object:
        raise error

    return raise_it


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.EIO, "Input/output error"), RuntimeError("std::bad_alloc")],
)
def test_weights_are_not_blamed_for_the_host(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "model")
    monkeypatch.setattr(subprocess, "run", raising(error))
    monkeypatch.setattr(safetensors.torch, "load", raising(error))
    with pytest.raises(HostShortage):
        load_checkpoint(tmp_path, "model", device=CPU)


def test_nor_is_a_folder_when_no_file_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "model")
    opened = os.open

    def scarce(path: object, *given: object, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, *given)

    monkeypatch.setattr(os, "open", scarce)
    with pytest.raises(HostShortage):
        load_checkpoint(tmp_path, "model", device=CPU)
