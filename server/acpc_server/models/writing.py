"""Writes checkpoint folders, whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from pathlib import Path

import torch

from acpc_server.errors import AlreadyExists
from acpc_server.models.weights import StateDict


@contextmanager
def new_folder(destination: Path) -> Iterator[Path]:
    """A folder that takes its place when all went well; AlreadyExists where there is one.

    A killed process leaves a folder ``tmp*`` beside ``destination``.
    """
    if destination.exists():
        raise AlreadyExists(f"{destination} exists; name a new folder", reason="FOLDER_EXISTS")
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        folder = Path(scratch, "checkpoint")
        folder.mkdir()
        yield folder
        folder.rename(destination)


def save_weights(state: StateDict, file: Path) -> None:
    """Write a state dict, and empty it.

    Raises OSError: It cannot be written.
    """
    try:
        with file.open("wb") as opened:
            torch.save(_dense(state), opened)
    except RuntimeError as error:  # of a full disk torch says "unexpected pos"
        cause = error.__context__
        raise cause if isinstance(cause, OSError) else OSError(EIO, str(error)) from error
    state.clear()


def _dense(state: StateDict) -> StateDict:
    """Give each tensor a storage of its own."""
    dense: StateDict = {}
    storages = set()
    for name, tensor in state.items():
        whole = tensor.contiguous()
        storage = whole.untyped_storage().data_ptr()
        dense[name] = whole.clone() if storage in storages else whole
        storages.add(storage)
    return dense
