"""What every request has: a checkpoint, an identity, a deadline."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from typing import Protocol

import grpc
from acpc.v1 import receipt_pb2

from acpc_server.engine import CheckpointCache, LoadedCheckpoint
from acpc_server.errors import InvalidArgument
from acpc_server.scheduling import Priority, RequestContext

DEFAULT_SECONDS = 300.0
MAX_NAME = 1024
MAX_REQUEST_ID = 128
# What the log calls the RPC under way.
CALL_ID: ContextVar[str] = ContextVar("call_id")


class _Identified(Protocol):
    request_id: str


def open_context(context: grpc.ServicerContext) -> RequestContext:
    """An interactive claim on the device that lapses with the call."""
    work = fresh_context(context)
    context.add_callback(work.cancel)
    return work


def fresh_context(context: grpc.ServicerContext) -> RequestContext:
    """A claim that the caller of this withdraws when the call ends."""
    remaining = context.time_remaining()
    seconds = DEFAULT_SECONDS if remaining is None else min(remaining, DEFAULT_SECONDS)
    return RequestContext(Priority.INTERACTIVE, seconds)


class StreamContexts:
    """A claim for each message of a stream; all lapse when the call ends.

    A stream lives as long as its caller wants, each message has its own time.
    """

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._work = fresh_context(context)
        context.add_callback(self._cancel)

    def renew(self) -> RequestContext:
        """The claim of the next message; withdrawn already when the call has ended."""
        self._work = fresh_context(self._context)
        if not self._context.is_active():
            self._cancel()
        return self._work

    def _cancel(self) -> None:
        self._work.cancel()


def request_id(request: _Identified) -> str:
    """The request's own id, or what the log calls the RPC; InvalidArgument when it is too long."""
    if len(request.request_id) > MAX_REQUEST_ID:
        raise InvalidArgument("request_id", f"longer than {MAX_REQUEST_ID} characters")
    return request.request_id or CALL_ID.get("") or str(uuid.uuid4())


def shown_id(request: _Identified) -> str:
    """The id by which an error speaks of the request, which may itself be at fault."""
    return request.request_id[:MAX_REQUEST_ID] or CALL_ID.get("")


def check_ref(ref: receipt_pb2.CheckpointRef, field: str) -> None:
    """Refuse a reference without a name, or with one of absurd length."""
    if not ref.name:
        raise InvalidArgument(f"{field}.name", "name the checkpoint's folder")
    if max(len(ref.name), len(ref.weights), len(ref.digest)) > MAX_NAME:
        raise InvalidArgument(field, f"a part is longer than {MAX_NAME} characters")


def load(
    checkpoints: CheckpointCache, ref: receipt_pb2.CheckpointRef, field: str = "checkpoint"
) -> LoadedCheckpoint:
    """The checkpoint that the request's ``field`` names.

    Raises:
        InvalidArgument: No name, or a name that is not a plain relative path.
        NotFound, FailedPrecondition, PermissionDenied: From the loader.
    """
    check_ref(ref, field)
    try:
        return checkpoints.get(ref.name, ref.weights, ref.digest)
    except InvalidArgument as error:
        raise error.moved("checkpoint", field) from error
