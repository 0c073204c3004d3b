"""What requests and answers have in common: ids, checkpoints, anchors, pages, and errors.

Errors travel as google.rpc.Status with the standard details.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

import grpc
from acpc.contract import (
    MAX_ANCHORS,
    MAX_REQUEST_ID,
    CheckpointRef,
    DatasetAnchors,
    EvidenceOptions,
    GivenViews,
    PerturbationSet,
    Population,
    Study,
    Views,
    Wire,
    check,
)
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from acpc_server.encoding import AnchorReaders, AnchorSetSource, AnySource
from acpc_server.engine import CachedCheckpoint, CheckpointCache
from acpc_server.errors import AcpcError, InvalidArgument, below
from acpc_server.perturb import NOT_DRAWN, require_known

# What the log calls the RPC under way.
CALL_ID: ContextVar[str] = ContextVar("call_id")
DOMAIN = "acpc.v1"
# A status travels in trailers, of which a client takes 8 KiB. The message goes twice, once with
# every byte beyond ASCII written as three, and callers' own text may be quoted in it.
MAX_TEXT_BYTES = 1024
MAX_FIELD_BYTES = 256
DEFAULT_PAGE = 100
MAX_PAGE = 1000
MAX_OFFSET = 2**31

Asked = TypeVar("Asked", bound=Wire[Any])


class _Identified(Protocol):
    @property
    def request_id(self) -> str: ...


class _Paged(Protocol):
    page_size: int
    page_token: str


def request_id(request: _Identified) -> str:
    """Return the request's own id, or that of the RPC; InvalidArgument when it is too long."""
    if len(request.request_id) > MAX_REQUEST_ID:
        raise InvalidArgument("request_id", f"longer than {MAX_REQUEST_ID} characters")
    return request.request_id or CALL_ID.get("") or str(uuid.uuid4())


def shown_id(request: _Identified) -> str:
    """Return the id for an error about the request, whose id may itself be at fault."""
    return request.request_id[:MAX_REQUEST_ID] or CALL_ID.get("")


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


def population_of(asked: EvidenceOptions, source: AnySource) -> Population:
    """Return of what a score is an estimate: of the dataset, unless its anchors were uploaded."""
    uploaded = isinstance(source, AnchorSetSource) and source.window_future_frames is None
    return asked.population or (Population.TRAJECTORIES if uploaded else Population.DATASET)


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
    plain = token.isascii() and token.isdecimal() and len(token) <= 10
    start = int(token) if plain else MAX_OFFSET + 1
    if start > MAX_OFFSET:
        raise InvalidArgument("page_token", "not a token of an earlier answer")
    return range(start, start + (request.page_size or DEFAULT_PAGE))


def page_of(
    request: _Paged, entries: Sequence[Any], write: Callable[[Any], Any] = Wire.to_message
) -> tuple[list[Any], str]:
    """Return one page of entries as messages, and the token of the next; '' on the last."""
    page = read_page(request)
    messages = [write(entry) for entry in entries[page.start : page.stop]]
    return messages, str(page.stop) if page.stop < len(entries) else ""


def to_status(error: AcpcError, identity: str) -> status_pb2.Status:
    """Make a status with ErrorInfo, RequestInfo and, where they apply, BadRequest and RetryInfo."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN),
        error_details_pb2.RequestInfo(request_id=identity),
    ]
    if error.violations:
        fields = [
            error_details_pb2.BadRequest.FieldViolation(
                field=_clipped(violation.field, MAX_FIELD_BYTES),
                description=_clipped(violation.description, MAX_TEXT_BYTES),
            )
            for violation in error.violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=fields))
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return plain_status(error.code, error.message, details)


def plain_status(code: str, message: str, details: list[Message]) -> status_pb2.Status:
    """Make a status from a code's name; a message too long for the trailers is cut."""
    packed = [any_pb2.Any() for _ in details]
    for value, detail in zip(packed, details, strict=True):
        value.Pack(detail)
    number: int = grpc.StatusCode[code].value[0]
    text = _clipped(message, MAX_TEXT_BYTES)
    return status_pb2.Status(code=number, message=text, details=packed)


def _clipped(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "..."
