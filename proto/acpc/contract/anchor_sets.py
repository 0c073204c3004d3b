"""Answers of AnchorService, and the digest of anchors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import numpy as np

from acpc.arrays import NDArray
from acpc.contract.anchor_arrays import DIRECTIONS, SMALL_ARRAYS, VIEWS, AnchorArrays
from acpc.contract.messages import Wire
from acpc.contract.record import Record
from acpc.contract.requests import DatasetAnchors
from acpc.contract.tensor import Array
from acpc.v1 import anchor_service_pb2 as pb


class AnchorArray(Record, Wire[pb.AnchorArray]):
    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


class AnchorSet(Record, Wire[pb.AnchorSet]):
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
    extras: tuple[AnchorArray, ...] = ()
    windows: int | None = None

    @property
    def groups(self) -> dict[str, int]:
        """Views of each history in every group of views, by the group's name."""
        return self._groups(VIEWS)

    @property
    def directions(self) -> dict[str, int]:
        """Probe directions of each history in every group of them, by the group's name."""
        return self._groups(DIRECTIONS)

    def _groups(self, prefix: str) -> dict[str, int]:
        arrays = [array for array in self.extras if array.name.startswith(prefix)]
        return {array.name.removeprefix(prefix): array.shape[0] for array in arrays}


class AnchorContents(Record, Wire[pb.AnchorContents]):
    endpoint_states: NDArray[np.float64]
    labels: NDArray[np.int64]
    anchor_ids: NDArray[np.int64]
    trajectory_ids: NDArray[np.int64]
    radius: float | None = None


def endpoints_at(small: Mapping[str, Array], horizon: int) -> dict[str, Array]:
    """The small arrays with endpoint states and labels of one future frame, from 1; 0: the last.

    States (n, state width) and labels (n) stay as they are; others are of every future frame, (n,
    H, state width) and (n, H).
    """
    if small["labels"].ndim == 1:
        return dict(small)
    picked = {name: small[name][:, horizon - 1] for name in ("endpoint_states", "labels")}
    return {**small, **picked}


def endpoints_digest(small: Mapping[str, Array]) -> str:
    """sha256 of states and labels at every future frame; empty where there is only the last."""
    if small["labels"].ndim == 1:
        return ""
    digest = hashlib.sha256()
    _add(digest, small, ("endpoint_states", "labels"))
    return digest.hexdigest()


def _add(digest: hashlib._Hash, small: Mapping[str, Array], names: Iterable[str]) -> None:
    for name in names:
        array = np.ascontiguousarray(small[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"\n{name} {little.dtype.str} {little.shape}\n".encode())
        digest.update(little.data)


def frame_digests(frames: Array) -> list[bytes]:
    """sha256 of the bytes of each anchor: of frames, or of an array beside them."""
    return [hashlib.sha256(np.ascontiguousarray(anchor).data).digest() for anchor in frames]


def extra_digest(
    name: str, dtype: np.dtype[np.generic], shape: Sequence[int], of_anchors: Iterable[bytes]
) -> str:
    """sha256 of an extra array: its shape, anchors first, and ``frame_digests`` of all of them."""
    layout = f"{name} {dtype.newbyteorder('<').str} {tuple(shape)}\n"
    return hashlib.sha256(layout.encode() + b"".join(of_anchors)).hexdigest()


def anchors_digest(
    history: int,
    frame_size: tuple[int, int],
    small: Mapping[str, Array],
    of_frames: Iterable[bytes],
    extras: Mapping[str, str] | None = None,
) -> str:
    """sha256 over the history length and every array: name, dtype, shape, bytes.

    Of states and labels those of the last future frame count: a set that has more of them has the
    digest of one that has not, and ``endpoints_digest`` tells them apart.

    The sha256 of each anchor's frames (``frame_digests``) is used instead of their bytes, so that
    the digest does not depend on how frames are cut into shards, and a part of them can be checked
    alone. ``frame_size`` is height and width in pixels; of ``extras`` count the ``extra_digest``.
    """
    small = endpoints_at(small, 0)
    count, blocks = small["action_blocks"].shape[:2]
    digest = hashlib.sha256(f"acpc/anchors/2 history={history}".encode())
    digest.update(f"\nframes |u1 {(count, blocks + 1, *frame_size, 3)}\n".encode())
    for of_anchor in of_frames:
        digest.update(of_anchor)
    _add(digest, small, SMALL_ARRAYS)
    for name, of_array in sorted((extras or {}).items()):
        digest.update(f"\nextra {name} {of_array}\n".encode())
    return digest.hexdigest()


def digest_of(anchors: AnchorArrays) -> str:
    """The digest that the set of these anchors has; reads every frame once."""
    large = {name: list[bytes]() for name in ("frames", *anchors.extras)}
    for part in anchors.cuts():
        for name in large:
            large[name] += frame_digests(part.arrays[name])
    extras = {
        name: extra_digest(name, array.dtype, array.shape, large[name])
        for name, array in anchors.extras.items()
    }
    height, width = anchors.frames.shape[2:4]
    frames = large["frames"]
    return anchors_digest(anchors.history, (height, width), anchors.small, frames, extras)
