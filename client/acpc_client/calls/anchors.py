"""AnchorService."""

from __future__ import annotations

import zlib

from acpc.contract import (
    SMALL_ARRAYS,
    AnchorContents,
    AnchorSet,
    Array,
    CreateRequest,
    DatasetAnchors,
    Reading,
    write_tensor,
)
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import tensor_pb2
from acpc.v1.anchor_service_pb2_grpc import AnchorServiceStub

from acpc_client.anchor_arrays import AnchorArrays
from acpc_client.calls.call import Method, Page, PreparedCall, identity, list_call, send
from acpc_client.inputs import unsigned

# One stream of an upload, of which there may be many.
UPLOAD = Method(AnchorServiceStub, "UploadAnchors", timeout=600.0)
PROGRESS = Method(AnchorServiceStub, "GetUpload", timeout=30.0)
# Reads the dataset and compresses its frames.
CREATE = Method(AnchorServiceStub, "CreateAnchorSet", timeout=3600.0)
GET = Method(AnchorServiceStub, "GetAnchorSet", timeout=10.0)
LIST = Method(AnchorServiceStub, "ListAnchorSets", timeout=30.0)
# A second delete would answer NOT_FOUND for a set that the first one deleted.
DELETE = Method(AnchorServiceStub, "DeleteAnchorSet", timeout=60.0, idempotent=False)

# Fast: frames of simulators shrink a lot at any level.
ZLIB_LEVEL = 1


def shard(part: AnchorArrays, offset: int, compress: bool) -> pb.AnchorShard:
    """The message of some anchors, the first of which is ``offset``."""
    frames, packing = _large(part.frames[0 : len(part)], compress)
    message = pb.AnchorShard(
        offset=offset,
        frames=frames,
        frame_compression=packing,
        frame_crc32=zlib.crc32(frames.data),
        extras=[
            _extra(name, array[0 : len(part)], compress) for name, array in part.extras.items()
        ],
    )
    for name in SMALL_ARRAYS:
        if (array := getattr(part, name)) is not None:
            getattr(message, name).CopyFrom(write_tensor(array, f"anchors.{name}"))
    return message


def _extra(name: str, array: Array, compress: bool) -> pb.ShardArray:
    values, packing = _large(array, compress)
    crc32 = zlib.crc32(values.data)
    return pb.ShardArray(name=name, values=values, compression=packing, crc32=crc32)


def _large(array: Array, compress: bool) -> tuple[tensor_pb2.Tensor, pb.Compression.ValueType]:
    """A large array, deflated where that makes it smaller."""
    tensor = write_tensor(array)
    packed = zlib.compress(tensor.data, ZLIB_LEVEL) if compress else tensor.data
    if len(packed) >= array.nbytes:
        return tensor, pb.COMPRESSION_NONE
    tensor.data = packed
    return tensor, pb.COMPRESSION_ZLIB


def progress(request_id: str) -> PreparedCall[pb.GetUploadResponse]:
    """The call that asks where an upload goes on."""
    return PreparedCall(PROGRESS, pb.GetUploadRequest(request_id=request_id), _same, request_id)


def create(
    source: DatasetAnchors,
    history: int,
    horizon: int,
    description: str,
    reading: Reading,
    request_id: str | None,
) -> PreparedCall[AnchorSet]:
    """The call that makes a set from a dataset."""
    asked = CreateRequest(source, history, horizon, description, identity(request_id), reading)
    return send(CREATE, asked, _set)


def get(anchor_set: AnchorSet | str) -> PreparedCall[AnchorSet]:
    """The call that reads one set."""
    return PreparedCall(GET, pb.GetAnchorSetRequest(digest=digest_of(anchor_set)), _set)


def contents(anchor_set: AnchorSet | str, neighbourhood: float) -> PreparedCall[AnchorContents]:
    """The call that reads the states and labels of one set."""
    request = pb.GetAnchorSetRequest(
        digest=digest_of(anchor_set), contents=True, neighbourhood=neighbourhood
    )
    return PreparedCall(GET, request, lambda answer: AnchorContents.from_message(answer.contents))


def list_page(page_size: int, token: str) -> PreparedCall[Page[AnchorSet]]:
    """The call that reads one page of sets."""
    size = unsigned(page_size, "page_size")
    request = pb.ListAnchorSetsRequest(page_size=size, page_token=token)
    return list_call(LIST, request, "anchor_sets", AnchorSet.from_message)


def delete(anchor_set: AnchorSet | str) -> PreparedCall[None]:
    """The call that removes a set."""
    request = pb.DeleteAnchorSetRequest(digest=digest_of(anchor_set))
    return PreparedCall(DELETE, request, lambda _: None)


def digest_of(anchor_set: AnchorSet | str) -> str:
    """The digest of a set named either way."""
    return anchor_set if isinstance(anchor_set, str) else anchor_set.digest


def _same(answer: pb.GetUploadResponse) -> pb.GetUploadResponse:
    return answer


def _set(answer: pb.GetAnchorSetResponse | pb.CreateAnchorSetResponse) -> AnchorSet:
    return AnchorSet.from_message(answer.anchor_set)
