"""What requests have: a checkpoint and an id, anchors, and the page of a list."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from acpc.contract import (
    MAX_ANCHORS,
    MAX_REQUEST_ID,
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

from acpc_server.access import LOCAL, Principal
from acpc_server.encoding import AnchorReaders, AnySource
from acpc_server.engine import CheckpointCache, LoadedCheckpoint
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import NOBODY, Owner
from acpc_server.perturb import NOT_DRAWN, require_known

# What the log calls the RPC under way.
CALL_ID: ContextVar[str] = ContextVar("call_id")

Asked = TypeVar("Asked", bound=Wire[Any])


class _Called(Protocol):
    principal: Principal


def principal(context: _Called) -> Principal:
    """Who makes the call."""
    return context.principal


def owner(context: _Called) -> Owner:
    """Whose the jobs are that the call submits; nobody's on a server without authentication."""
    who = principal(context)
    return NOBODY if who is LOCAL else Owner(who.tenant, who.name)


class _Identified(Protocol):
    @property
    def request_id(self) -> str: ...


def request_id(request: _Identified) -> str:
    """The request's own id, or what the log calls the RPC; InvalidArgument when it is too long."""
    if len(request.request_id) > MAX_REQUEST_ID:
        raise InvalidArgument("request_id", f"longer than {MAX_REQUEST_ID} characters")
    return request.request_id or CALL_ID.get("") or str(uuid.uuid4())


def shown_id(request: _Identified) -> str:
    """The id by which an error speaks of the request, which may itself be at fault."""
    return request.request_id[:MAX_REQUEST_ID] or CALL_ID.get("")


def read(record: type[Asked], message: Message, path: str = "") -> Asked:
    """A message as a record of the contract, every field in its range.

    Raises:
        InvalidArgument: A value that breaks the contract; names its path.
    """
    try:
        asked = record.from_message(message, strict=True)
        check(asked)
    except InvalidArgument as error:
        raise (error.below(path) if path else error) from error
    return asked


def require_views(asked: Views | None) -> None:
    """Raise InvalidArgument or FailedPrecondition for views that cannot be had here."""
    if isinstance(asked, PerturbationSet):
        for index, spec in enumerate(asked.specs):
            if isinstance(spec, GivenViews):
                raise InvalidArgument(f"perturbations.specs[{index}].{spec.kind}", NOT_DRAWN)
        require_known(asked.specs, "perturbations.specs[{}]")


def read_anchors(
    asked: DatasetAnchors | str | None, readers: AnchorReaders, study: Study | None = None
) -> AnySource:
    """The anchors of a job, nothing left open."""
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
    checkpoints: CheckpointCache, ref: CheckpointRef, field: str = "checkpoint"
) -> LoadedCheckpoint:
    """The checkpoint that the request's ``field`` names."""
    try:
        loaded = checkpoints.get(ref.name, ref.weights, ref.digest)
    except InvalidArgument as error:
        raise error.moved("checkpoint", field) from error
    if field == "checkpoint":
        checkpoints.count_request(loaded)
    return loaded


DEFAULT_PAGE = 100
MAX_PAGE = 1000
MAX_OFFSET = 2**31


def read_page(page_size: int, page_token: str) -> range:
    """The rows a list request asks for."""
    if not 0 <= page_size <= MAX_PAGE:
        raise InvalidArgument("page_size", f"{page_size} is not in 0 to {MAX_PAGE}")
    token = page_token or "0"
    plain = token.isascii() and token.isdecimal() and len(token) <= 10
    start = int(token) if plain else MAX_OFFSET + 1
    if start > MAX_OFFSET:
        raise InvalidArgument("page_token", "not a token of an earlier answer")
    return range(start, start + (page_size or DEFAULT_PAGE))


def write_token(next_row: int | None) -> str:
    """The token of the page that starts at ``next_row``; empty on the last page."""
    return "" if next_row is None else str(next_row)
