"""Anchor sets, their headers and their sources, in and out of the wire's messages."""

from __future__ import annotations

from acpc.v1 import anchor_service_pb2 as pb
from google.protobuf import timestamp_pb2

from acpc_server.data.anchor_sets import (
    AnchorStore,
    StoredSet,
    UploadHeader,
    check_digest,
)
from acpc_server.errors import InvalidArgument
from acpc_server.rpc.request import MAX_REQUEST_ID

MAX_STEPS = 256
MAX_DESCRIPTION = 1024


def read_steps(value: int, field: str) -> int:
    """A history or a horizon; InvalidArgument outside its range."""
    if not 1 <= value <= MAX_STEPS:
        raise InvalidArgument(field, f"{value} frames are not in 1 to {MAX_STEPS}")
    return value


def read_description(text: str) -> str:
    """The free text of a set; InvalidArgument when it is too long."""
    if len(text) > MAX_DESCRIPTION:
        raise InvalidArgument("description", f"longer than {MAX_DESCRIPTION} characters")
    return text


def read_header(message: pb.UploadHeader, request_id: str) -> UploadHeader:
    """The header of an upload, under the id it is to have.

    Raises:
        InvalidArgument: A number out of range, a text too long, or no digest.
    """
    if len(message.request_id) > MAX_REQUEST_ID:
        raise InvalidArgument("request_id", f"longer than {MAX_REQUEST_ID} characters")
    if not message.anchors:
        raise InvalidArgument("anchors", "say how many anchors are going to come, at least 1")
    if message.expected_digest:
        check_digest(message.expected_digest, "expected_digest")
    return UploadHeader(
        request_id=request_id,
        anchors=message.anchors,
        history=read_steps(message.history, "history"),
        horizon=read_steps(message.horizon, "horizon"),
        description=read_description(message.description),
        expected_digest=message.expected_digest,
    )


def write_set(store: AnchorStore, stored: StoredSet) -> pb.AnchorSet:
    """The message of a stored set."""
    info, expires = stored.info, store.expire_time(stored)
    return pb.AnchorSet(
        digest=info.digest,
        anchors=info.anchors,
        history=info.history,
        horizon=info.horizon,
        action_block_dim=info.action_block_dim,
        state_dim=info.state_dim,
        size_bytes=info.size_bytes,
        create_time=_timestamp(info.create_time),
        expire_time=None if expires is None else _timestamp(expires),
        description=info.description,
        height=info.height,
        width=info.width,
        source=None if info.source is None else pb.DatasetAnchors(**info.source.model_dump()),
    )


def _timestamp(seconds: float) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromMilliseconds(round(seconds * 1000))
    return stamp
