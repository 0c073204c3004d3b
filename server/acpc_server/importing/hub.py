"""Downloads a checkpoint from the Hugging Face Hub, for an import. The server never goes there."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from acpc.extras import install_line

from acpc_server.errors import (
    AcpcError,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from acpc_server.importing.sources import CONFIGS, SUFFIXES, Run, find_run
from acpc_server.models import DEFAULT_LIMITS

REPO = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


@contextmanager
def _asking(repo: str) -> Iterator[None]:
    """Make what the Hub rejects, and whatever else goes wrong on the way to it, one sentence."""
    try:
        from huggingface_hub import errors  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError:
        problem = f"an import from the Hub needs huggingface_hub: {install_line('hub')}"
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


def download(
    source: str, weights: list[str], target: Path, say: Callable[[str], object], dry_run: bool
) -> Run | None:
    """Download what an import reads of ``hf:USER/REPO[@REVISION]``; None: it was a dry run.

    Takes the files of one commit. They are kept in a hidden folder beside ``target`` until the
    caller removes it, so that the same call goes on.
    """
    if (parsed := REPO.fullmatch(source)) is None:
        problem = f"{source!r}; wanted: hf:USER/REPO or hf:USER/REPO@REVISION"
        raise InvalidArgument("source", problem)
    if target.exists():
        raise AlreadyExists(f"{target} exists; name a new folder", reason="FOLDER_EXISTS")
    repo, revision = parsed.groups()
    with _asking(repo):
        from huggingface_hub import HfApi  # noqa: PLC0415 - of an extra

        endpoint = os.environ.get("HF_ENDPOINT")
        hub = HfApi(endpoint)
        info = hub.model_info(repo, revision=revision, files_metadata=True)
        commit, files = str(info.sha), {x.rfilename: x for x in info.siblings or ()}
        if not COMMIT.fullmatch(commit):
            raise _unavailable(repo, "it names no commit")
        chosen, limit = _chosen([*files], weights), DEFAULT_LIMITS.weights_bytes
        say(f"{repo} at commit {commit}: {', '.join(chosen)}")
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
    return replace(find_run(staging), origin=f"hf:{repo}@{commit}")


def _chosen(names: list[str], weights: list[str]) -> list[str]:
    """The files at the top level that an import reads; NotFound if no weights are among them."""
    found = [name for name in names if "/" not in name and name.endswith(SUFFIXES)]
    taken = [name for name in found if any(fnmatch(name, pattern) for pattern in weights)]
    if not taken:
        problem = f"no such weights file; there are: {', '.join(found) or 'none at the top level'}"
        raise NotFound(problem)
    return [name for name in names if name in (*CONFIGS, "acpc.json")] + taken
