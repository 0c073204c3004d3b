"""An anchor service in memory, written from the contract, that can be told to misbehave."""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import anchor_wire
import grpc
import numpy as np
import wire
from acpc.v1 import anchor_service_pb2 as pb
from client_counterparty import Refused, Scripted, page
from client_messages import status

DTYPES = {code: name for name, code in wire.CODES.items()}


class AnchorCounterparty(Scripted):
    """Stores uploads by request id and sets by digest; refuses streams after a shard each.

    Attributes:
        headers: Every header that arrived.
        shards: Every shard that arrived, stored or not.
        forgets: Streams that end well until one loses its upload; 0: none does.
        lies: Whether sets are answered under another digest.
        on_stream_end: Called with the anchors that are stored when a stream has ended well.
    """

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[pb.UploadHeader] = []
        self.shards: list[pb.AnchorShard] = []
        self.forgets = 0
        self.lies = False
        self.on_stream_end: Callable[[int], object] = lambda stored: None
        self.uploads: dict[str, list[pb.AnchorShard]] = {}
        self.sets: dict[str, pb.AnchorSet] = {}

    def UploadAnchors(self, requests: Iterator[Any], context: Any) -> dict[str, Any]:
        header = next(requests).header
        self.headers.append(header)
        kept = self.uploads.setdefault(header.request_id, [])
        for request in requests:
            shard = request.shard
            assert zlib.crc32(shard.frames.data) == shard.frame_crc32
            assert shard.offset == self._next(kept)
            self.shards.append(shard)
            kept.append(shard)
            self.refuse("UploadAnchors")
        self.refuse("UploadAnchors")
        self.forgets -= 1
        if not self.forgets:
            del self.uploads[header.request_id]
            return {"next_offset": 0}
        found = self._finished(header, kept)
        self.on_stream_end(self._next(kept))
        return {"anchor_set": found, "next_offset": self._next(kept)}

    @staticmethod
    def _next(kept: list[pb.AnchorShard]) -> int:
        return kept[-1].offset + kept[-1].frames.shape[0] if kept else 0

    def _finished(self, header: pb.UploadHeader, kept: list[pb.AnchorShard]) -> Any:
        if self._next(kept) < header.anchors:
            return None
        arrays: dict[str, np.ndarray] = {}
        for name in ("frames", *anchor_wire.SMALL):
            if name == "trajectory_ids" and not kept[0].HasField(name):
                arrays[name] = np.arange(header.anchors)
                continue
            tensors = [getattr(shard, name) for shard in kept]
            data = [tensor.data for tensor in tensors]
            if name == "frames":
                packed = [shard.frame_compression == pb.COMPRESSION_ZLIB for shard in kept]
                data = [zlib.decompress(d) if z else d for d, z in zip(data, packed, strict=True)]
            shape = (-1, *tensors[0].shape[1:])
            arrays[name] = np.frombuffer(b"".join(data), DTYPES[tensors[0].dtype]).reshape(shape)
        digest = anchor_wire.digest(arrays, header.history)
        if self.lies:
            digest = digest[::-1]
        times = {
            "create_time": {"seconds": 1_800_000_000}, "expire_time": {"seconds": 1_800_864_000},
        }  # fmt: skip
        shown = ("anchors", "history", "horizon", "description")
        same = {name: getattr(header, name) for name in shown}
        found = pb.AnchorSet(digest=digest, size_bytes=3 * 2**20, **same, **times)
        return self.sets.setdefault(digest, found)

    def GetUpload(self, request: Any, context: Any) -> dict[str, Any]:
        return {"next_offset": self._next(_of(self.uploads, request.request_id))}

    def CreateAnchorSet(self, request: Any, context: Any) -> dict[str, Any]:
        made = pb.AnchorSet(
            digest="c" * 64,
            anchors=request.source.count,
            history=request.history,
            horizon=request.horizon,
            description=request.description,
            source=request.source,
        )
        return {"anchor_set": self.sets.setdefault(made.digest, made)}

    def GetAnchorSet(self, request: Any, context: Any) -> dict[str, Any]:
        return {"anchor_set": _of(self.sets, request.digest)}

    def ListAnchorSets(self, request: Any, context: Any) -> dict[str, Any]:
        found, token = page(list(self.sets.values()), request)
        return {"anchor_sets": found, "next_page_token": token}

    def DeleteAnchorSet(self, request: Any, context: Any) -> dict[str, Any]:
        _of(self.sets, request.digest)
        del self.sets[request.digest]
        return {}


def _of(kept: dict[str, Any], name: str) -> Any:
    """What is kept under a name, or the refusal that there is no such thing."""
    if name not in kept:
        raise Refused(status(grpc.StatusCode.NOT_FOUND, "no such upload or set"))
    return kept[name]
