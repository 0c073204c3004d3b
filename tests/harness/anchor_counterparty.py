"""An anchor service in memory, written from the contract, that can be told to misbehave."""

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import anchor_wire
import grpc
import numpy as np
import wire
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import anchor_service_pb2_grpc as pb_grpc
from google.rpc import status_pb2
from grpc_status import rpc_status

DTYPES = {code: name for name, code in wire.CODES.items()}


class AnchorCounterparty(pb_grpc.AnchorServiceServicer):
    """Stores uploads by request id and sets by digest.

    Attributes:
        headers: Every header that arrived.
        shards: Every shard that arrived, stored or not.
        created: Every request to make a set.
        refusals: Statuses that the next streams end with, after one shard each.
        forgets: Streams that end well until one loses its upload; 0: none does.
        lies: Whether sets are answered under another digest.
        keeps: Whether shards before a refusal are kept.
        on_stream_end: Called with the anchors that are stored when a stream has ended well.
    """

    def __init__(self) -> None:
        self.headers: list[pb.UploadHeader] = []
        self.shards: list[pb.AnchorShard] = []
        self.created: list[pb.CreateAnchorSetRequest] = []
        self.refusals: deque[status_pb2.Status] = deque()
        self.forgets = 0
        self.lies = False
        self.keeps = True
        self.on_stream_end: Callable[[int], object] = lambda stored: None
        self.uploads: dict[str, list[pb.AnchorShard]] = {}
        self.sets: dict[str, pb.AnchorSet] = {}

    def UploadAnchors(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        header = next(requests).header
        self.headers.append(header)
        kept = self.uploads.setdefault(header.request_id, [])
        for request in requests:
            shard = request.shard
            assert zlib.crc32(shard.frames.data) == shard.frame_crc32
            assert shard.offset == self._next(kept)
            self.shards.append(shard)
            kept.append(shard)
            if self.refusals:
                break
        if self.refusals:
            if not self.keeps:
                kept.clear()
            context.abort_with_status(rpc_status.to_status(self.refusals.popleft()))
        self.forgets -= 1
        if not self.forgets:
            del self.uploads[header.request_id]
            return pb.UploadAnchorsResponse(next_offset=0)
        found = self._finished(header, kept)
        self.on_stream_end(self._next(kept))
        return pb.UploadAnchorsResponse(anchor_set=found, next_offset=self._next(kept))

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
        found = pb.AnchorSet(
            digest=digest,
            anchors=header.anchors,
            history=header.history,
            horizon=header.horizon,
            description=header.description,
            size_bytes=3 * 2**20,
        )
        found.create_time.FromSeconds(1_800_000_000)
        found.expire_time.FromSeconds(1_800_864_000)
        return self.sets.setdefault(digest, found)

    def GetUpload(self, request: pb.GetUploadRequest, context: grpc.ServicerContext) -> Any:
        if request.request_id not in self.uploads:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such upload")
        return pb.GetUploadResponse(next_offset=self._next(self.uploads[request.request_id]))

    def CreateAnchorSet(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.created.append(request)
        made = pb.AnchorSet(
            digest="c" * 64,
            anchors=request.source.count,
            history=request.history,
            horizon=request.horizon,
            description=request.description,
            source=request.source,
        )
        return pb.CreateAnchorSetResponse(anchor_set=self.sets.setdefault(made.digest, made))

    def GetAnchorSet(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._known(request.digest, context)
        return pb.GetAnchorSetResponse(anchor_set=self.sets[request.digest])

    def ListAnchorSets(self, request: Any, context: grpc.ServicerContext) -> Any:
        start = int(request.page_token or 0)
        stop = start + request.page_size
        found = list(self.sets.values())
        token = str(stop) if stop < len(found) else ""
        return pb.ListAnchorSetsResponse(anchor_sets=found[start:stop], next_page_token=token)

    def DeleteAnchorSet(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._known(request.digest, context)
        del self.sets[request.digest]
        return pb.DeleteAnchorSetResponse()

    def _known(self, digest: str, context: grpc.ServicerContext) -> None:
        if digest not in self.sets:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such set")
