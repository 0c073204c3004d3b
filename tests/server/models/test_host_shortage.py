"""A host that runs short is not a checkpoint that is broken."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from acpc_server.errors import HostShortage
from acpc_server.models import load_checkpoint
from public_checkpoint import write_checkpoint

CPU = torch.device("cpu")


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
    monkeypatch.setattr(torch, "load", raising(error))
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
        return opened(path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", scarce)
    with pytest.raises(HostShortage):
        load_checkpoint(tmp_path, "model", device=CPU)
