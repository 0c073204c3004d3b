"""Finds what one import reads: a run's weights files, epoch by epoch, and its config."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from acpc_server.errors import FailedPrecondition, InvalidArgument, NotFound
from acpc_server.models import one_file_command

SUFFIXES = (".ckpt", ".pt", ".pth", ".safetensors")
CONFIGS = ("config.json", "config.yaml", "hydra.yaml")
EPOCH = re.compile(r"epoch[_=](\d{1,9})(?!\d)|^model_(\d{1,9})\.pth$")
HUB = "models--"
MAX_DEPTH = 8


@dataclass(frozen=True)
class Run:
    """One model, in one or more epochs."""

    place: Path  # the file or folder that was named
    files: tuple[Path, ...]  # with weights, by name
    config: Path | None  # beside or above them
    origin: str = ""  # where they were published


def epoch_in(name: str) -> int | None:
    """The epoch that a file's name says."""
    found = EPOCH.search(name)
    return int(found[1] or found[2]) if found else None


def find_run(source: Path, config: Path | None = None) -> Run:
    """Find the run at a path: a run's folder, a hub's cache of a model, or one weights file.

    Raises NotFound: Nothing there, or no weights file; InvalidArgument: A cache of several
    revisions.
    """
    if source.is_file():
        return Run(source, (source,), config or _config(source.parent))
    if not source.is_dir():
        raise NotFound(f"{source} does not exist")
    folder = _snapshot(source)
    places = (folder, folder / "checkpoints")
    files = next((found for place in places if (found := _weights(place))), ())
    if not files or _distributed(folder):
        inner = (sub for place in places for sub in sorted(place.glob("*/")))  # as in weights/
        for one in (folder, *inner):
            if command := _distributed(one):
                raise FailedPrecondition(
                    f"{one} is a distributed checkpoint, in files of several processes; where it "
                    f"was written make one file of it, and import that: {command}",
                    reason="CHECKPOINT_WEIGHTS_REFUSED",
                )
        raise NotFound(f"{source}: no weights file ({', '.join('*' + x for x in SUFFIXES)})")
    return Run(source, files, config or _config(files[0].parent))


def find_runs(root: Path) -> Iterator[tuple[str, Path]]:
    """Name and folder of every run below one; ``checkpoints`` belongs to its parent."""
    if not root.is_dir():
        raise NotFound(f"{root} does not exist or is no folder")
    for path, folders, _ in os.walk(root):
        here = Path(path)
        relative = here.relative_to(root)
        folders[:] = sorted(name for name in folders if name not in {"blobs", ".git"})
        if len(relative.parts) >= MAX_DEPTH:
            folders.clear()
        if here.name.startswith(HUB):
            folders.clear()
        if here.name.startswith(HUB) or _weights(here) or _distributed(here):
            named = relative.parent if here.name == "checkpoints" else relative
            yield named.as_posix(), here


def _distributed(folder: Path) -> str:
    """The command that makes one file of a distributed checkpoint; nothing for another folder."""
    return one_file_command([entry.name for entry in folder.iterdir()], str(folder))


def _weights(folder: Path) -> tuple[Path, ...]:
    if not folder.is_dir():
        return ()
    files = [x for x in folder.iterdir() if x.suffix in SUFFIXES and x.is_file()]
    return tuple(
        sorted(
            files,
            key=lambda file: (epoch_in(file.name) is None, epoch_in(file.name) or 0, file.name),
        )
    )


def _config(folder: Path) -> Path | None:
    """A config beside weights, or beside the ``checkpoints`` folder that they lie in."""
    folders = (folder, folder.parent) if folder.name == "checkpoints" else (folder,)
    return next((x for place in folders for name in CONFIGS if (x := place / name).is_file()), None)


def _snapshot(folder: Path) -> Path:
    """The revision of a hub's cache that ``refs/main`` names, or the only one."""
    snapshots = folder / "snapshots"
    if not folder.name.startswith(HUB) or not snapshots.is_dir():
        return folder
    revisions = sorted(entry.name for entry in snapshots.iterdir() if entry.is_dir())
    main = folder / "refs" / "main"
    named = main.read_text(errors="replace")[:200].strip() if main.is_file() else ""
    if named not in revisions and len(revisions) != 1:
        found = ", ".join(revisions[:5]) or "none"
        raise InvalidArgument("source", f"{folder}: name one of its snapshots: {found}")
    return snapshots / (named if named in revisions else revisions[0])
