"""Anchor sets as messages."""

from __future__ import annotations

from acpc.v1 import anchor_service_pb2 as pb
from google.protobuf import timestamp_pb2

from acpc_server.data.anchor_sets import AnchorStore, StoredSet


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
        source=None if info.source is None else info.source.to_message(),
    )


def _timestamp(seconds: float) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromMilliseconds(round(seconds * 1000))
    return stamp
