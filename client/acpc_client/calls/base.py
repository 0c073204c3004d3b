"""Makes the messages of calls."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

import numpy as np
from acpc.contract import (
    AnchorSet,
    CheckpointRef,
    DatasetAnchors,
    NumericMode,
    VisualChange,
    Wire,
    WireEnum,
    check,
)
from google.protobuf.message import Message

from acpc_client.calls.call import Call, Method, Page
from acpc_client.calls.options import CallOptions

Answer = TypeVar("Answer")
M = TypeVar("M", bound=Message)


def identity(request_id: str | None) -> str:
    """The caller's request id, or a fresh one."""
    return request_id or str(uuid.uuid4())


def reference(checkpoint: str | CheckpointRef) -> Any:  # noqa: ANN401 - a generated message
    """The message for a checkpoint named either way."""
    return CheckpointRef.of(checkpoint).to_message()


def common(checkpoint: str | CheckpointRef, options: CallOptions) -> dict[str, Any]:
    """What every computing request has: request id, checkpoint and numeric mode."""
    return {
        "request_id": identity(options.get("request_id")),
        "checkpoint": CheckpointRef.of(checkpoint),
        "numeric_mode": options.get("numeric_mode", NumericMode.SERVER_DEFAULT),
    }


def source(anchors: DatasetAnchors | AnchorSet | str) -> DatasetAnchors | str:
    """Where the anchors of a job come from; a text is the digest of a set."""
    return anchors.digest if isinstance(anchors, AnchorSet) else anchors


def message(request: Wire[M]) -> M:
    """The message of a request whose fields are all in range.

    Raises:
        ArgumentError: One is not, or cannot be sent; names the field.
    """
    check(request)
    sent = request.to_message()
    _drop_defaults(request, sent)
    return sent


def _drop_defaults(record: Any, sent: Any) -> None:  # noqa: ANN401 - any record and its message
    """Clears what has the contract's default: the server fills it in, a newer one with its own."""
    for name, wire, default, of_oneof in _droppable(type(record)):
        value = getattr(record, name)
        if isinstance(value, np.ndarray | VisualChange):
            continue
        if not of_oneof and value == default and default is not MISSING:
            sent.ClearField(wire)
        elif isinstance(value, Wire):
            _drop_defaults(value, getattr(sent, sent.WhichOneof(wire) if of_oneof else wire))


def _find_droppable(cls: type) -> list[tuple[str, str, object, bool]]:
    """Fields that may have their default, or hold a record: name, wire name, default, oneof."""
    known = cls.message_type.DESCRIPTOR  # type: ignore[attr-defined]
    found: list[tuple[str, str, object, bool]] = []
    for f in fields(cls):
        wire = f.metadata.get("wire", f.name)
        if wire in known.oneofs_by_name:
            found.append((f.name, wire, MISSING, True))
        elif wire in known.fields_by_name:
            field = known.fields_by_name[wire]
            cleared = field.has_presence or isinstance(f.default, tuple | WireEnum)
            if cleared:
                found.append((f.name, wire, f.default, False))
    return found


_droppable: Callable[[Any], list[tuple[str, str, object, bool]]] = cache(_find_droppable)


def list_call(
    method: Method, request: Message, field: str, read: Callable[[Any], Answer]
) -> Call[Page[Answer]]:
    """The call that reads one page of a list, whose records the answer's ``field`` holds."""

    def parse(answer: Any) -> Page[Answer]:  # noqa: ANN401 - a generated message
        return Page(tuple(map(read, getattr(answer, field))), answer.next_page_token)

    return Call(method, request, parse)


def send(method: Method, request: Wire[Any], parse: Callable[[Any], Answer]) -> Call[Answer]:
    """The call that sends a request; raises as ``message``."""
    sent: Any = message(request)
    return Call(method, sent, parse, sent.request_id)
