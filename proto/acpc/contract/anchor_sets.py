"""Answers of AnchorService."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from acpc.contract.messages import Wire
from acpc.contract.record import Record
from acpc.contract.requests import DatasetAnchors
from acpc.v1 import anchor_service_pb2 as pb


@dataclass(frozen=True, repr=False, eq=False)
class AnchorSet(Record, Wire[pb.AnchorSet]):
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
