"""acpc-server pull: downloads a checkpoint from the Hugging Face Hub. Needs no running server."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import typer
from acpc.extras import install_line

from acpc_server.errors import (
    AcpcError,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from acpc_server.import_command import OUT, ActionDim, Backbone, Family, Frameskip, import_files
from acpc_server.importing import CONFIGS, SUFFIXES, find_run
from acpc_server.models import DEFAULT_LIMITS

REPO = re.compile(r"(?:hf:)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


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
    frameskip: Frameskip = None,
    action_dim: ActionDim = None,
    family: Family = None,
    backbone: Backbone = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the commit and its files, write nothing")
    ] = False,
) -> None:
    """Download a checkpoint from the Hugging Face Hub and import it. The server never goes there.

    Takes the files of one commit, imports them as `acpc-server import` does, and writes the folder
    whole or not at all. What was downloaded is kept until that succeeds, so that the same command
    goes on. HF_TOKEN and HF_ENDPOINT mean what they mean to huggingface_hub:

        acpc-server pull quentinll/lewm-pusht checkpoints/lewm-pusht
    """
    if (parsed := REPO.fullmatch(source)) is None:
        problem = f"{source!r}; wanted: USER/REPO or USER/REPO@REVISION"
        raise InvalidArgument("source", problem)
    if target.exists():
        raise AlreadyExists(f"{target} exists; name a new folder", reason="FOLDER_EXISTS")
    repo, revision = parsed.groups()
    staging = _download(repo, revision, weights or ["*"], target, dry_run)
    if staging is None:
        return
    run = replace(find_run(staging), origin=f"hf:{repo}@{staging.suffix[1:]}")
    asked = {"frameskip": frameskip, "action_dim": action_dim, "family": family,
             "backbone": str(backbone) if backbone else None}  # fmt: skip
    import_files(run, target, asked)
    shutil.rmtree(staging)


@contextmanager
def _asking(repo: str) -> Iterator[None]:
    """Make what the Hub rejects, and whatever else goes wrong on the way to it, one sentence."""
    try:
        from huggingface_hub import errors  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError:
        problem = f"pull needs huggingface_hub: {install_line('hub')}"
        raise FailedPrecondition(problem, reason="EXTRA_MISSING") from None
    try:
        yield
    except AcpcError:
        raise
    except errors.GatedRepoError:
        problem = f"{repo} is gated: ask for access on its page, and set HF_TOKEN to your token"
        raise FailedPrecondition(problem, reason="HUB_REFUSED") from None
    except errors.RevisionNotFoundError:
        raise NotFound(f"{repo} has no such revision") from None
    except errors.RepositoryNotFoundError:
        problem = f"{repo} does not exist on the Hub, or is private, which HF_TOKEN opens"
        raise NotFound(problem) from None
    except Exception as error:  # noqa: BLE001 - its HTTP client differs by release
        raise _unavailable(repo, str(error) or type(error).__name__) from None


def _unavailable(repo: str, why: str) -> FailedPrecondition:
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    reason = why.strip().partition("\n")[0]
    problem = f"the Hub ({endpoint}) did not give {repo}: {reason}"
    return FailedPrecondition(problem, reason="HUB_UNAVAILABLE")


def _download(
    repo: str, revision: str | None, weights: list[str], target: Path, dry_run: bool
) -> Path | None:
    """Download what an import reads; return its folder, which ends in the commit, or None."""
    with _asking(repo):
        from huggingface_hub import HfApi  # noqa: PLC0415 - of an extra

        endpoint = os.environ.get("HF_ENDPOINT")
        hub = HfApi(endpoint)
        info = hub.model_info(repo, revision=revision, files_metadata=True)
        commit, files = str(info.sha), {x.rfilename: x for x in info.siblings or ()}
        if not COMMIT.fullmatch(commit):
            raise _unavailable(repo, "it names no commit")
        chosen, limit = _chosen([*files], weights), DEFAULT_LIMITS.weights_bytes
        OUT.print(f"{repo} at commit {commit}: {', '.join(chosen)}")
        if dry_run:
            return None
        for name in chosen:
            if not 0 < (size := files[name].size or 0) <= limit:
                raise _unavailable(repo, f"{name} has {size} bytes, over the limit of {limit}")
        staging = target.parent / f".{target.name}.{commit}"  # no listing looks into it
        for name in chosen:
            hub.hf_hub_download(repo, name, revision=commit, local_dir=staging)
            with (staging / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if (told := files[name].lfs) is not None and told.sha256 != found:
                shutil.rmtree(staging)
                raise _unavailable(repo, f"{name} has another sha256 than it told")
    return staging


def _chosen(names: list[str], weights: list[str]) -> list[str]:
    """The files at the top level that an import reads; NotFound if no weights are among them."""
    found = [name for name in names if "/" not in name and name.endswith(SUFFIXES)]
    taken = [name for name in found if any(fnmatch(name, pattern) for pattern in weights)]
    if not taken:
        problem = f"no such weights file; there are: {', '.join(found) or 'none at the top level'}"
        raise NotFound(problem)
    return [name for name in names if name in (*CONFIGS, "acpc.json")] + taken
