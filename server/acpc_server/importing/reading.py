"""Opens every weights file of a run as data; what misleads is rejected before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from acpc_server.importing.archive import Archive, unsafe
from acpc_server.importing.inert import read_inert
from acpc_server.importing.sources import Run, epoch_in
from acpc_server.importing.world_model import FoundModel, find


@dataclass(frozen=True)
class RunFile:
    """A weights file that was looked through, and the name of what it becomes.

    ``archive`` and ``found`` are None for safetensors, which hold nothing but tensors.
    """

    path: Path
    archive: Archive | None
    found: FoundModel | None
    epoch: int | None
    target: str


def read_run(run: Run) -> list[RunFile]:
    """Look through every file of a run; close each file's ``archive`` in the end.

    Raises UnsafeCheckpoint: A file is damaged, hostile, or holds something else.
    """
    files = [_read(path) for path in run.files]
    if len(files) == 1 and files[0].epoch is None:
        return [replace(files[0], target="weights.pt")]
    return files


def _read(path: Path) -> RunFile:
    epoch = epoch_in(path.name)
    plain = "".join(x if x.isalnum() or x in "-_." else "_" for x in path.stem)[:100]
    target = f"weights_{plain}.pt" if epoch is None else f"weights_epoch_{epoch}.pt"
    if path.suffix == ".safetensors":
        return RunFile(path, None, None, epoch, target)
    archive = Archive(path)
    try:
        found = find(read_inert(archive), path.name)
        named = sum(tensor.nbytes for tensor in found.tensors.values())
        if named > 2 * archive.size:  # a tensor under two names is two tensors once written
            raise unsafe(path.name, f"its {named} bytes of tensors come from {archive.size}")
    except BaseException:
        archive.close()
        raise
    return RunFile(path, archive, found, epoch, target)
