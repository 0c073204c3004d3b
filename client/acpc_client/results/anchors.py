"""Answers of AnchorService."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from acpc.contract import DatasetAnchors, Record
from acpc.v1 import anchor_service_pb2 as pb

from acpc_client.results.base import moment


@dataclass(frozen=True, repr=False, eq=False)
class AnchorSet(Record):
    """An immutable set of anchors at the server; scores and studies take it as their anchors.

    Attributes:
        digest: sha256 of its content; its name.
        anchors: Anchors n.
        history: Frames h of the history.
        horizon: Future frames H.
        height: Of a frame, in pixels.
        width: Of a frame, in pixels.
        action_block_dim: Width of an action block.
        state_dim: Width of an endpoint state.
        size_bytes: Bytes on the server's disk.
        create_time: When it was made.
        expire_time: When it goes, unless a job uses it before; None: never.
        description: Free text of the first uploader.
        source: Where the server drew the anchors; None for an upload.
    """

    digest: str
    anchors: int
    history: int
    horizon: int
    height: int
    width: int
    action_block_dim: int
    state_dim: int
    size_bytes: int
    create_time: datetime | None
    expire_time: datetime | None
    description: str
    source: DatasetAnchors | None

    @classmethod
    def from_message(cls, message: pb.AnchorSet) -> AnchorSet:
        """Reads the wire form."""
        return cls(
            digest=message.digest,
            anchors=message.anchors,
            history=message.history,
            horizon=message.horizon,
            height=message.height,
            width=message.width,
            action_block_dim=message.action_block_dim,
            state_dim=message.state_dim,
            size_bytes=message.size_bytes,
            create_time=moment(message, "create_time"),
            expire_time=moment(message, "expire_time"),
            description=message.description,
            source=DatasetAnchors.from_message(message.source)
            if message.HasField("source")
            else None,
        )


@dataclass(frozen=True, repr=False, eq=False)
class UploadProgress(Record):
    """How far an upload is.

    Attributes:
        stored: Anchors that are at the server for good.
        total: Anchors of the set.
        sent_bytes: Bytes of shards sent by this call, repetitions included.
        request_id: With it, another call goes on with the upload.
    """

    stored: int
    total: int
    sent_bytes: int
    request_id: str
