"""acpc-server pull: downloads a checkpoint from the Hugging Face Hub. Needs no running server."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import torch
import typer
from acpc.extras import install_line
from rich.console import Console
from rich.table import Table

from acpc_server.errors import (
    AcpcError,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    UnsafeCheckpoint,
)
from acpc_server.models import load_checkpoint

if TYPE_CHECKING:
    from huggingface_hub import HfApi, ModelInfo

REPO = re.compile(r"(?:hf:)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
WANTED = (
    "config.json", "acpc.json", "config.yaml", "*.pt", "*.safetensors", "*.ckpt", "*.pth"
)  # fmt: skip
SOURCE_NAME = "source.json"
CHUNK = 2**20
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RemoteFile:
    """A file of one commit: its size in bytes, and the digest that the Hub states.

    ``algorithm`` is sha256 for a file in large storage, sha1 (of a git blob) for any other.
    """

    name: str
    size: int
    algorithm: str
    digest: str


def pull(
    source: Annotated[
        str, typer.Argument(metavar="USER/REPO[@REVISION]", help="model repository on the Hub")
    ],
    target: Annotated[
        Path, typer.Argument(help="folder to write, below the server's checkpoint root")
    ],
    weights: Annotated[
        list[str] | None,
        typer.Option(help="weights files to take, as names or patterns; repeat for several"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the commit and its files, write nothing")
    ] = False,
) -> None:
    """Download a checkpoint from the Hugging Face Hub, where the server itself never goes.

    Pins the commit, checks every file's digest, and writes the folder whole or not at all, with
    source.json, which says what it came from. An interrupted download goes on when the same command
    is given again. HF_TOKEN and HF_ENDPOINT mean what they mean to huggingface_hub:

        acpc-server pull quentinll/lewm-pusht checkpoints/lewm-pusht
    """
    if (parsed := REPO.fullmatch(source)) is None:
        problem = f"{source!r}; wanted: USER/REPO or USER/REPO@REVISION"
        raise InvalidArgument("source", problem)
    if target.exists():
        raise AlreadyExists(f"{target} exists; name a new folder", reason="FOLDER_EXISTS")
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    commit, files = find_files(parsed[1], parsed[2], tuple(weights or ()))
    table = Table("file", "MB", "digest", box=None)
    for file in files:
        table.add_row(file.name, f"{file.size / 1e6:.1f}", f"{file.algorithm} {file.digest[:12]}")
    console.print(f"{parsed[1]} at commit {commit}")
    console.print(table)
    if dry_run:
        return
    download(parsed[1], parsed[2], commit, files, target)
    console.print(_next_step(target, [file.name for file in files]))


def find_files(
    repo: str, revision: str | None, weights: tuple[str, ...]
) -> tuple[str, list[RemoteFile]]:
    """Return the commit that ``revision`` names now, and its files that make a checkpoint.

    Raises FailedPrecondition: huggingface_hub is not installed, or the Hub gives no answer;
    NotFound: No such repository or revision, or one without weights; InvalidArgument: None of its
    files is named like one of ``weights``.
    """
    info = _ask(repo, lambda api: api.model_info(repo, revision=revision, files_metadata=True))
    assert info.sha is not None  # noqa: S101 - of an answered request
    named = [file for file in _files(info) if any(fnmatch(file.name, x) for x in WANTED)]
    settings = [file for file in named if file.name.endswith((".json", ".yaml"))]
    found = [file for file in named if file not in settings]
    chosen = [x for x in found if not weights or any(fnmatch(x.name, one) for one in weights)]
    if not found:
        raise NotFound(f"{repo} at {info.sha[:12]} holds no weights file at its top level")
    if not chosen:
        raise InvalidArgument(
            "--weights", f"no such file; there are {', '.join(x.name for x in found)}"
        )
    return info.sha, settings + chosen


def download(
    repo: str, revision: str | None, commit: str, files: list[RemoteFile], target: Path
) -> None:
    """Download files of a commit into a new folder, with a record of where they came from.

    Raises FailedPrecondition: The Hub gives no answer, or the disk is too small; UnsafeCheckpoint:
    A file is not the one that the Hub described.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that it is renamed in one step; without config.json above it no server
    # lists what is in it.
    staging = target.parent / f".{target.name}.{commit[:12]}"
    free, size = shutil.disk_usage(target.parent).free, sum(file.size for file in files)
    if size > free:
        problem = f"{size / 1e6:.0f} MB are wanted below {target.parent}, {free / 1e6:.0f} are free"
        raise FailedPrecondition(problem, reason="DISK_FULL")
    patterns = [file.name for file in files]
    _ask(
        repo,
        lambda api: api.snapshot_download(
            repo, revision=commit, local_dir=staging, allow_patterns=patterns
        ),
    )
    held = {file.name: _check(staging / file.name, file) for file in files}
    shutil.rmtree(staging / ".cache", ignore_errors=True)
    record = {
        "source": 1,
        "command": "pull",
        "from": f"hf:{repo}",
        "revision": revision or "main",
        "commit": commit,
        "files": held,
    }
    (staging / SOURCE_NAME).write_text(json.dumps(record, indent=2) + "\n")
    staging.rename(target)


def _check(path: Path, file: RemoteFile) -> dict[str, Any]:
    """Compare a file with the Hub's digest, and return its own; removes one that differs."""
    sha256, stated = hashlib.sha256(), hashlib.new(file.algorithm, usedforsecurity=False)
    size = path.stat().st_size
    if file.algorithm == "sha1":
        stated.update(f"blob {size}\0".encode())
    with path.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            sha256.update(chunk)
            stated.update(chunk)
    if (size, stated.hexdigest()) != (file.size, file.digest):
        path.unlink()
        raise UnsafeCheckpoint(
            f"{file.name}: {size} bytes of {file.algorithm} {stated.hexdigest()}, but the Hub says "
            f"{file.size} of {file.digest}; it was removed. Give the command again"
        )
    return {"bytes": size, "sha256": sha256.hexdigest()}


def _files(info: ModelInfo) -> list[RemoteFile]:
    files = []
    for entry in info.siblings or ():
        if entry.lfs is not None:
            files.append(RemoteFile(entry.rfilename, entry.lfs.size, "sha256", entry.lfs.sha256))
        elif entry.size is not None and entry.blob_id is not None and "/" not in entry.rfilename:
            files.append(RemoteFile(entry.rfilename, entry.size, "sha1", entry.blob_id))
    return [file for file in files if "/" not in file.name]


def _ask(repo: str, call: Callable[[HfApi], Answer]) -> Answer:
    """Call huggingface_hub; raises one sentence for whatever goes wrong there."""
    try:
        import huggingface_hub as hub  # noqa: PLC0415 - of an extra
        from huggingface_hub import errors  # noqa: PLC0415
    except ModuleNotFoundError:
        problem = f"pull needs huggingface_hub: {install_line('hub')}"
        raise FailedPrecondition(problem, reason="EXTRA_MISSING") from None
    api = hub.HfApi(os.environ.get("HF_ENDPOINT") or None, library_name="acpc")
    try:
        return call(api)
    except errors.GatedRepoError:
        problem = f"{repo} is gated: ask for access on its page, and set HF_TOKEN to your token"
        raise FailedPrecondition(problem, reason="HUB_REFUSED") from None
    except errors.RevisionNotFoundError:
        raise NotFound(f"{repo} has no such revision") from None
    except errors.RepositoryNotFoundError:
        problem = f"{repo} does not exist on the Hub, or is private and HF_TOKEN does not open it"
        raise NotFound(problem) from None
    except Exception as error:  # noqa: BLE001  its HTTP client differs by release
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        problem = f"the Hub ({api.endpoint}) did not give {repo}: {reason}"
        held = Path(hub.constants.HF_HUB_CACHE, f"models--{repo.replace('/', '--')}")
        if held.is_dir():  # an earlier download by huggingface_hub itself
            problem += f"; its cache holds one: acpc-server import {held} NEW"
        raise FailedPrecondition(problem, reason="HUB_UNAVAILABLE") from None


def _next_step(target: Path, names: list[str]) -> str:
    """Word what was written, and the next command."""
    weights = [name for name in names if name.endswith((".pt", ".safetensors"))]
    if not weights or "config.json" not in names:
        new = target.with_name(f"{target.name}-imported")
        return f"wrote {target}; no server reads this form: acpc-server import {target} {new}"
    folder = target.absolute()
    try:
        name = "" if len(weights) == 1 else weights[0]
        card = load_checkpoint(folder.parent, folder.name, name, device=torch.device("cpu")).card
    except AcpcError as error:
        return f"wrote {target}, which a server would refuse: {error.message}"
    return f"wrote {target} ({card.family}, digest {card.digest})"
