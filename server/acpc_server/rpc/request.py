"""What requests have in common: checkpoints, anchors, pages, names of jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from acpc.contract import (
    MAX_ANCHORS,
    CheckpointRef,
    DatasetAnchors,
    GivenViews,
    PerturbationSet,
    Study,
    Views,
    Wire,
    check,
)
from google.protobuf.message import Message

from acpc_server.encoding import AnchorReaders, AnySource
from acpc_server.engine import CachedCheckpoint, CheckpointCache
from acpc_server.errors import InvalidArgument, NotFound, below
from acpc_server.perturb import NOT_DRAWN, require_known

PREFIX = "operations/"
DEFAULT_PAGE = 100
MAX_PAGE = 1000
MAX_OFFSET = 2**31
TOKEN = re.compile("[0-9]{1,10}")

Asked = TypeVar("Asked", bound=Wire[Any])


class _Paged(Protocol):
    page_size: int
    page_token: str


def read(record: type[Asked], message: Message, path: str = "") -> Asked:
    """Read a message as a record of the contract; InvalidArgument for a field out of its range."""
    with below(path):
        asked = record.from_message(message, strict=True)
        check(asked)
    return asked


def require_views(asked: Views | None) -> None:
    """Raise InvalidArgument or FailedPrecondition for views that this server cannot draw."""
    if isinstance(asked, PerturbationSet):
        for index, spec in enumerate(asked.specs):
            if isinstance(spec, GivenViews):
                raise InvalidArgument(f"perturbations.specs[{index}].{spec.kind}", NOT_DRAWN)
        require_known(asked.specs, "perturbations.specs[{}]")


def read_anchors(
    asked: DatasetAnchors | str | None, readers: AnchorReaders, study: Study | None = None
) -> AnySource:
    """Return the anchors of a job with every default filled in."""
    if isinstance(asked, DatasetAnchors):
        defaults = (study.default_count, study.one_per_episode) if study else ()
        return asked.resolved(*defaults)
    try:
        source = readers.named_set(asked or "")
    except InvalidArgument as error:
        raise error.moved("digest", "anchor_set") from error
    if not 2 <= source.count <= MAX_ANCHORS:
        raise InvalidArgument(
            "anchor_set", f"found {source.count} anchors, wanted 2 to {MAX_ANCHORS}"
        )
    return source


def load(
    checkpoints: CheckpointCache,
    ref: CheckpointRef,
    field: str = "checkpoint",
    loaded: CachedCheckpoint | None = None,
) -> CachedCheckpoint:
    """Load the checkpoint that the request's ``field`` names, unless it is at hand."""
    try:
        loaded = checkpoints.get(ref.name, ref.weights, ref.digest, ref.model_digest, loaded)
    except InvalidArgument as error:
        raise error.moved("checkpoint", field) from error
    if field == "checkpoint":
        checkpoints.metrics.count_request(loaded.name)
    return loaded


def read_page(request: _Paged) -> range:
    """Return the rows that a list request asks for."""
    if not 0 <= request.page_size <= MAX_PAGE:
        raise InvalidArgument("page_size", f"{request.page_size} is not in 0 to {MAX_PAGE}")
    token = request.page_token or "0"
    if not TOKEN.fullmatch(token) or (start := int(token)) > MAX_OFFSET:
        raise InvalidArgument("page_token", "not a token of an earlier answer")
    return range(start, start + (request.page_size or DEFAULT_PAGE))


def page_of(
    request: _Paged, entries: Sequence[Any], write: Callable[[Any], Any] = Wire.to_message
) -> tuple[list[Any], str]:
    """Return one page of entries as messages, and the token of the next; '' on the last."""
    page = read_page(request)
    messages = [write(entry) for entry in entries[page.start : page.stop]]
    return messages, str(page.stop) if page.stop < len(entries) else ""


def read_name(name: str) -> str:
    """Return the job id of ``operations/<id>``; InvalidArgument for any other name."""
    job_id = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or not job_id:
        raise InvalidArgument("name", f"{name!r}; an operation is named operations/<id>")
    if len(job_id) > 64 or not job_id.isascii() or not job_id.isprintable():
        raise NotFound("no operation has that name")
    return job_id
