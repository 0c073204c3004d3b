"""Answers of AnchorService, and the digest of anchors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acpc.contract.messages import Wire
from acpc.contract.record import Record
from acpc.contract.requests import DatasetAnchors
from acpc.v1 import anchor_service_pb2 as pb

SMALL_ARRAYS = ("action_blocks", "endpoint_states", "labels", "anchor_ids", "trajectory_ids")
"""Every array of anchors but the frames, in the order of the digest."""


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
        endpoints_digest: sha256 of the states and labels at every future frame; with them, scores
            take the set at shorter horizons too. Empty: at its own horizon alone.
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
    endpoints_digest: str = ""


def endpoints_at(small: Mapping[str, NDArray[Any]], horizon: int) -> dict[str, NDArray[Any]]:
    """The small arrays with the endpoint states and labels of one future frame.

    Args:
        small: The ``SMALL_ARRAYS``; states (n, state width) and labels (n), which stay, or of every
            future frame, (n, H, state width) and (n, H).
        horizon: Which future frame, from 1; 0: the last.
    """
    if small["labels"].ndim == 1:
        return dict(small)
    picked = {name: small[name][:, horizon - 1] for name in ("endpoint_states", "labels")}
    return {**small, **picked}


def endpoints_digest(small: Mapping[str, NDArray[Any]]) -> str:
    """sha256 of states and labels at every future frame; empty where there is only the last."""
    if small["labels"].ndim == 1:
        return ""
    digest = hashlib.sha256()
    for name in ("endpoint_states", "labels"):
        array = np.ascontiguousarray(small[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"\n{name} {little.dtype.str} {little.shape}\n".encode())
        digest.update(little.data)
    return digest.hexdigest()


def frame_digests(frames: NDArray[np.uint8]) -> list[bytes]:
    """sha256 of the frames of each anchor, of uint8 (n, h + H, height, width, 3)."""
    return [hashlib.sha256(np.ascontiguousarray(anchor).data).digest() for anchor in frames]


def anchors_digest(
    history: int,
    frame_size: tuple[int, int],
    small: Mapping[str, NDArray[Any]],
    of_frames: Iterable[bytes],
) -> str:
    """sha256 over the history length and every array: name, dtype, shape, bytes.

    Of states and labels those of the last future frame count: a set that has more of them has the
    digest of one that has not, and ``endpoints_digest`` tells them apart.

    The sha256 of each anchor's frames is used instead of their bytes, so that the digest does not
    depend on how frames are cut into shards, and a part of them can be checked alone.

    Args:
        history: Frames h of the history.
        frame_size: Height and width of a frame, in pixels.
        small: The ``SMALL_ARRAYS`` by name.
        of_frames: ``frame_digests`` of all anchors, in order.
    """
    small = endpoints_at(small, 0)
    count, blocks = small["action_blocks"].shape[:2]
    digest = hashlib.sha256(f"acpc/anchors/2 history={history}".encode())
    digest.update(f"\nframes |u1 {(count, blocks + 1, *frame_size, 3)}\n".encode())
    for of_anchor in of_frames:
        digest.update(of_anchor)
    for name in SMALL_ARRAYS:
        array = np.ascontiguousarray(small[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"\n{name} {little.dtype.str} {little.shape}\n".encode())
        digest.update(little.data)
    return digest.hexdigest()
