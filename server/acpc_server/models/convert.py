"""Offline conversions an operator runs by hand; the server calls none of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from pathlib import Path
from typing import Literal

import safetensors.torch
import torch
from safetensors import SafetensorError

from acpc_server.errors import AlreadyExists, InvalidArgument
from acpc_server.models.config import CONFIG_NAME, OPTIONS_NAME
from acpc_server.models.folder import DEFAULT_LIMITS, CheckpointLimits
from acpc_server.models.frozen import ModelCard
from acpc_server.models.loader import build_model, load_checkpoint, read_checkpoint
from acpc_server.models.weights import StateDict

Container = Literal["pt", "safetensors"]
DtypeName = Literal["float32", "float16", "bfloat16"]


def convert_weights(
    source: Path,
    destination: Path,
    *,
    weights: str = "",
    dtype: DtypeName = "float32",
    container: Container = "safetensors",
    limits: CheckpointLimits = DEFAULT_LIMITS,
) -> ModelCard:
    """Copy a checkpoint folder with its weights in another precision or container.

    Reads as the server does and executes nothing. The server computes in float32 from any stored
    precision, so a 16-bit file saves disk, and rounds the weights. Raises InvalidArgument:
    ``dtype`` cannot hold a weight's magnitude; AlreadyExists: ``destination`` exists;
    UnsafeCheckpoint: The server would reject the source.
    """
    tree, reader = read_checkpoint(source.parent, source.name, weights, limits)
    build_model(reader, torch.device("cpu"), limits)
    state: StateDict = {}
    for name, tensor in reader.tensors.items():
        state[name] = tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor
        if not torch.isfinite(state[name]).all():
            raise InvalidArgument(
                "dtype", f"{dtype} cannot hold {name}, whose largest value is {tensor.abs().max()}"
            )
    options = {key: value for key, value in reader.options.items() if key != "backbone"}
    with new_folder(destination) as folder:
        save_weights(state, folder / f"weights.{container}")
        if options:
            (folder / OPTIONS_NAME).write_text(json.dumps(options) + "\n")
        (folder / CONFIG_NAME).write_bytes(tree)  # last: without it nothing lists the folder
        cpu = torch.device("cpu")
        return load_checkpoint(folder.parent, folder.name, device=cpu, limits=limits).card


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
    """Write a state dict in the container that the file's name says, and empty it.

    Raises OSError: It cannot be written.
    """
    try:
        if file.suffix == ".safetensors":
            safetensors.torch.save_file(_dense(state), file)
        else:
            with file.open("wb") as opened:
                torch.save(_dense(state), opened)
    except (RuntimeError, SafetensorError) as error:  # of a full disk torch says "unexpected pos"
        cause = error.__context__
        raise cause if isinstance(cause, OSError) else OSError(EIO, str(error)) from error
    state.clear()


def _dense(state: StateDict) -> StateDict:
    """Give each tensor a storage of its own, as safetensors wants."""
    dense: StateDict = {}
    storages = set()
    for name, tensor in state.items():
        whole = tensor.contiguous()
        storage = whole.untyped_storage().data_ptr()
        dense[name] = whole.clone() if storage in storages else whole
        storages.add(storage)
    return dense
