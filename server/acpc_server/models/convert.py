"""Offline conversions an operator runs by hand; the server calls none of them.

``convert_object`` is the one place of this package that executes what a checkpoint file says.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Literal

import safetensors.torch
import torch
from torch import nn

from acpc_server.errors import AlreadyExists, FailedPrecondition, InvalidArgument, UnsafeCheckpoint
from acpc_server.models.config import CONFIG_NAME, OPTIONS_NAME, JsonObject, read_config
from acpc_server.models.folder import DEFAULT_LIMITS, CheckpointLimits
from acpc_server.models.frozen import ModelCard
from acpc_server.models.loader import build_model, read_checkpoint
from acpc_server.models.weights import StateDict, StateReader, unwrap

Container = Literal["pt", "safetensors"]
DtypeName = Literal["float32", "float16", "bfloat16"]


def convert_object(
    source: Path,
    destination: Path,
    *,
    config: Path,
    execute: bool = False,
    container: Container = "pt",
    limits: CheckpointLimits = DEFAULT_LIMITS,
) -> ModelCard:
    """Turn a pickled ``*_object.ckpt`` module into a checkpoint folder.

    THIS EXECUTES THE FILE. Unpickling runs any code its author put there, with the operator's
    rights. Convert only files you would run as a program, away from the server, where the classes
    it was pickled from can be imported.

    Raises:
        FailedPrecondition: ``execute`` is not True.
        AlreadyExists: ``destination`` exists.
        UnsafeCheckpoint: The file holds no module, or its weights do not fit the config.
    """
    if execute is not True:
        raise FailedPrecondition(
            f"{source.name}: converting it executes the code pickled in it; pass execute=True if "
            "you trust its author",
            reason="EXECUTION_NOT_ALLOWED",
        )
    tree = config.read_bytes()
    # Executing the file is this function's stated purpose.
    module = torch.load(source, map_location="cpu", weights_only=False)
    if not isinstance(module, nn.Module):
        raise UnsafeCheckpoint(
            f"{source.name}: holds a {type(module).__name__}, not a pickled module"
        )
    state = unwrap(module.state_dict(), source.name)
    return _write(destination, tree, state, container, limits)


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

    Reads as the server does and executes nothing. The server computes in float32 whatever the
    stored precision, so a 16-bit file costs rounding of the weights alone and saves disk only.

    Raises:
        InvalidArgument: ``dtype`` cannot hold a weight's magnitude.
        AlreadyExists: ``destination`` exists.
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
    return _write(destination, tree, state, container, limits, options)


def _write(
    destination: Path,
    tree: bytes,
    state: StateDict,
    container: Container,
    limits: CheckpointLimits,
    options: JsonObject | None = None,
) -> ModelCard:
    """Write a folder whose bytes have first been built into a model."""
    if destination.exists():
        raise AlreadyExists(f"{destination} exists; name a new folder", reason="FOLDER_EXISTS")
    filename = f"weights.{container}"
    data = _serialise(state, container)
    reader = StateReader(filename, data, read_config(tree), options)
    model = build_model(reader, torch.device("cpu"), limits)
    destination.mkdir(parents=True)
    (destination / CONFIG_NAME).write_bytes(tree)
    (destination / filename).write_bytes(data)
    if options:
        (destination / OPTIONS_NAME).write_text(json.dumps(options))
    return model.card


def _serialise(state: StateDict, container: Container) -> bytes:
    if container == "safetensors":
        dense = {name: tensor.contiguous() for name, tensor in state.items()}
        return safetensors.torch.save(dense)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
