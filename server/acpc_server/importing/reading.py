"""Looks through every weights file of a run, before any of them is taken."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from acpc_server.errors import FailedPrecondition, NotFound, UnsafeCheckpoint
from acpc_server.importing.sources import Run, epoch_in
from acpc_server.importing.world_model import FoundModel, Records, find
from acpc_server.models import DEFAULT_LIMITS, Archive, StateReader, check_container, read_open


@dataclass(frozen=True)
class RunFile:
    """A weights file that was looked through, and the name of what it becomes.

    ``found`` is None for safetensors, which hold nothing but tensors.
    """

    path: Path
    found: FoundModel | None
    epoch: int | None
    target: str
    size: int
    sha256: str

    def tensors(self, records: Records | None = None) -> dict[str, Tensor]:
        """Read the file again, and make the model's tensors, or others of it.

        Raises FailedPrecondition: It was written to meanwhile.
        """
        data = read_bytes(self.path)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise FailedPrecondition(f"{self.path.name}: changed while it was read; try again")
        if self.found is None:
            return StateReader(self.path.name, data, {}).tensors
        return self.found.archive.tensors(records or self.found.tensors, data)


def read_run(run: Run, key: str = "") -> list[RunFile]:
    """Look through every file of a run; ``key`` names the weights in them that are meant.

    Raises UnsafeCheckpoint: A file is damaged, hostile, or holds something else.
    """
    files = [_read(path, key) for path in run.files]
    if len(files) == 1 and files[0].epoch is None:
        return [replace(files[0], target="weights.pt")]
    return files


def read_bytes(path: Path) -> bytes:
    """A weights file, once its ends and its size are those of one.

    Raises NotFound: No such file; UnsafeCheckpoint: No regular file, above the server's limit, or
    not the container that its name says.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist") from None
    except OSError as error:
        raise FailedPrecondition(f"{path} cannot be opened: {error.strerror}") from None
    if path.is_dir():
        os.close(descriptor)
        raise UnsafeCheckpoint(f"{path.name}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        return read_open(file, path.name, DEFAULT_LIMITS.weights_bytes, check_container)


def _read(path: Path, key: str) -> RunFile:
    epoch, data = epoch_in(path.name), read_bytes(path)
    plain = "".join(x if x.isalnum() or x in "-_." else "_" for x in path.stem)[:100]
    target = f"weights_{plain}.pt" if epoch is None else f"weights_epoch_{epoch}.pt"
    found = None if path.suffix == ".safetensors" else find(Archive(path.name, data), key)
    return RunFile(path, found, epoch, target, len(data), hashlib.sha256(data).hexdigest())
