"""A checkpoint's files from the Hugging Face Hub, at one commit, by ``huggingface_hub``."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from acpc.extras import install_line

from acpc_server.errors import (
    AcpcError,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    shortage,
)
from acpc_server.importing.sources import CONFIGS, SUFFIXES, Run, find_run
from acpc_server.models import DEFAULT_LIMITS

REPO = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


@contextmanager
def _hub(repo: str) -> Iterator[Any]:
    """Yield the Hub's client; what it raises in the block becomes one sentence.

    Raises NotFound: There is no such repository, revision or file; FailedPrecondition: The extra is
    missing, the repository is gated, or the Hub does not give what is asked for.
    """
    try:
        # Of an extra. Its modules are named: as attributes they may not be there yet.
        import huggingface_hub.constants  # noqa: PLC0415
        import huggingface_hub.errors  # noqa: PLC0415
    except ModuleNotFoundError:
        problem = f"an import from the Hub needs huggingface_hub: {install_line('hub')}"
        raise FailedPrecondition(problem, reason="EXTRA_MISSING") from None
    errors = huggingface_hub.errors
    client = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        yield client
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
        if (short := shortage(error)) is not None:  # as a full disk
            raise short from None
        why = (str(error) or type(error).__name__).strip().partition("\n")[0]
        problem = f"the Hub ({client.endpoint}) did not give {repo}: {why}"
        raise FailedPrecondition(problem, reason="HUB_UNAVAILABLE") from None


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
    with _hub(repo) as hub:
        info = hub.model_info(repo, revision=revision, files_metadata=True)
        if not COMMIT.fullmatch(str(info.sha)):
            raise ValueError("it names no commit")
        files = {file.rfilename: file for file in info.siblings}
        chosen = _chosen([*files], weights)
        say(f"{repo} at commit {info.sha}: {', '.join(chosen)}")
        if dry_run:
            return None
        staging = target.parent / f".{target.name}.{info.sha}"  # no listing looks into it
        for name in chosen:
            size, most = files[name].size, DEFAULT_LIMITS.weights_bytes
            if size is None or size > most:
                raise ValueError(f"{name} has {size} bytes, over the limit of {most}, or no size")
            path = Path(hub.hf_hub_download(repo, name, revision=info.sha, local_dir=staging))
            with path.open("rb") as file:
                told = files[name].lfs and files[name].lfs.sha256
                if told and hashlib.file_digest(file, "sha256").hexdigest() != told:
                    path.unlink()
                    raise ValueError(f"{name} has another sha256 than it told")
    return replace(find_run(staging), origin=f"hf:{repo}@{info.sha}")


def _chosen(names: list[str], weights: list[str]) -> list[str]:
    """The files at the top level that an import reads; NotFound if no weights are among them."""
    found = [name for name in names if "/" not in name and name.endswith(SUFFIXES)]
    taken = [name for name in found if any(fnmatch(name, pattern) for pattern in weights)]
    if not taken:
        problem = f"no such weights file; there are: {', '.join(found) or 'none at the top level'}"
        raise NotFound(problem)
    return [name for name in names if name in (*CONFIGS, "acpc.json")] + taken
