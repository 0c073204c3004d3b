"""A checkpoint's files from the Hugging Face Hub, none of whose words is believed unchecked."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
MAX_JSON_BYTES = 2**23
SILENT_SECONDS = 30.0
# Transfers of a file, each of which goes on with what is there.
TRANSFERS = 5


class Hub:
    """What the Hub tells of a repository, none of which is believed before it is checked.

    Every method raises FailedPrecondition for what the Hub does not give, NotFound for what it does
    not have.
    """

    def __init__(self, repo: str) -> None:
        try:
            # Of an extra. Its modules are named: as attributes they may not be there yet.
            import huggingface_hub.constants  # noqa: PLC0415
            import huggingface_hub.errors  # noqa: PLC0415
            import huggingface_hub.utils  # noqa: PLC0415
        except ModuleNotFoundError:
            problem = f"an import from the Hub needs huggingface_hub: {install_line('hub')}"
            raise FailedPrecondition(problem, reason="EXTRA_MISSING") from None
        hub: Any = huggingface_hub
        self._hub, self._repo = hub, repo
        self._endpoint = os.environ.get("HF_ENDPOINT") or hub.constants.ENDPOINT
        # Not hub.utils.build_hf_headers, which asks the Hub for a file of any size.
        token = None if hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else hub.get_token()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers |= {"User-Agent": f"acpc; hf_hub/{hub.__version__}"}
        self._headers["Accept-Encoding"] = "identity"  # a packed answer has no size

    def _parts(self, url: str, what: str, most: int, **headers: str) -> Iterator[tuple[int, bytes]]:
        """Ask for something of so many bytes at most; yield the status with each part of it.

        What goes wrong is one sentence.
        """
        hub, repo, found = self._hub, self._repo, 0
        given = {"headers": {**self._headers, **headers}, "timeout": SILENT_SECONDS}
        try:
            with hub.utils.get_session().stream("GET", url, **given) as answer:
                hub.utils.hf_raise_for_status(answer)
                for part in answer.iter_bytes():  # as they come: a cut loses none
                    found += len(part)
                    if found > most:
                        raise self._unavailable(f"{what} of more than {most} bytes")
                    yield answer.status_code, part
        except AcpcError:
            raise
        except hub.errors.GatedRepoError:
            problem = f"{repo} is gated: ask for access on its page, and set HF_TOKEN to your token"
            raise FailedPrecondition(problem, reason="HUB_REFUSED") from None
        except hub.errors.RevisionNotFoundError:
            raise NotFound(f"{repo} has no such revision") from None
        except hub.errors.RepositoryNotFoundError:
            problem = f"{repo} does not exist on the Hub, or is private, which HF_TOKEN opens"
            raise NotFound(problem) from None
        except Exception as error:  # noqa: BLE001 - its HTTP client differs by release
            raise self._unavailable(str(error) or type(error).__name__) from None

    def _unavailable(self, why: str) -> FailedPrecondition:
        reason = why.strip().partition("\n")[0]
        problem = f"the Hub ({self._endpoint}) did not give {self._repo}: {reason}"
        return FailedPrecondition(problem, reason="HUB_UNAVAILABLE")

    def files(self, revision: str | None) -> tuple[str, dict[str, tuple[int, str]]]:
        """Return a revision's commit, and size and sha256, where told, of its files by name."""
        which = quote(revision or "main", safe="")
        url = f"{self._endpoint}/api/models/{self._repo}/revision/{which}?blobs=true"
        told = b"".join(part for _, part in self._parts(url, "an answer", MAX_JSON_BYTES))
        try:
            info = json.loads(told)
            commit = str(info["sha"])
            listed = [(str(x["rfilename"]), x.get("size"), x.get("lfs")) for x in info["siblings"]]
            files = {
                name: (int(size), "" if lfs is None else str(lfs["sha256"]))
                for name, size, lfs in listed
                if size is not None
            }
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise self._unavailable("an answer that tells no files") from None
        if not COMMIT.fullmatch(commit):
            raise FailedPrecondition(
                f"{self._repo}: the Hub names no commit", reason="HUB_UNAVAILABLE"
            )
        return commit, files

    def download(self, name: str, commit: str, size: int, sha: str, path: Path) -> None:
        """Download a file of the size that the Hub told, going on with what is there of it."""
        if not 0 < size <= DEFAULT_LIMITS.weights_bytes:
            limit = DEFAULT_LIMITS.weights_bytes
            raise self._unavailable(f"{name} has {size} bytes, over the limit of {limit}, or none")
        url = self._hub.hf_hub_url(self._repo, name, revision=commit, endpoint=self._endpoint)
        for left in range(TRANSFERS, 0, -1):
            try:
                self._transfer(url, name, size, path)
                break
            except FailedPrecondition:
                if left == 1:
                    raise
        with path.open("rb") as file:
            if sha and hashlib.file_digest(file, "sha256").hexdigest() != sha:
                path.unlink()
                raise self._unavailable(f"{name} has another sha256 than it told")

    def _transfer(self, url: str, name: str, size: int, path: Path) -> None:
        have = path.stat().st_size if path.exists() else 0
        if have == size:
            return
        resumed = False
        with path.open("ab") as file:
            for status, part in self._parts(url, name, size, Range=f"bytes={have}-"):
                if not resumed and status != HTTPStatus.PARTIAL_CONTENT:  # the whole of it
                    have = file.truncate(0)
                resumed = True
                have += len(part)
                if have > size:
                    raise self._unavailable(f"{name} of more than {size} bytes")
                file.write(part)
        if have < size:
            raise self._unavailable(f"{name} ended after {have} of {size} bytes")


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
    hub = Hub(repo)
    commit, files = hub.files(revision)
    chosen = _chosen([*files], weights)
    say(f"{repo} at commit {commit}: {', '.join(chosen)}")
    if dry_run:
        return None
    staging = target.parent / f".{target.name}.{commit}"  # no listing looks into it
    staging.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        hub.download(name, commit, *files[name], staging / name)
    return replace(find_run(staging), origin=f"hf:{repo}@{commit}")


def _chosen(names: list[str], weights: list[str]) -> list[str]:
    """The files at the top level that an import reads; NotFound if no weights are among them."""
    found = [name for name in names if "/" not in name and name.endswith(SUFFIXES)]
    taken = [name for name in found if any(fnmatch(name, pattern) for pattern in weights)]
    if not taken:
        problem = f"no such weights file; there are: {', '.join(found) or 'none at the top level'}"
        raise NotFound(problem)
    return [name for name in names if name in (*CONFIGS, "acpc.json")] + taken
