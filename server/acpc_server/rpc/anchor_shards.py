"""The shards of an upload as arrays. Nothing in them is believed."""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

import numpy as np
from acpc.contract import (
    DTYPES,
    MAX_EXTRA_ARRAYS,
    SMALL_ARRAYS,
    AnchorArrays,
    Form,
    check_array,
    check_arrays,
    extra_array,
    read_tensor,
)
from acpc.datasets import MAX_FRAME_SIDE
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import tensor_pb2

from acpc_server.data import check_numbers
from acpc_server.data.anchor_sets import UploadHeader
from acpc_server.errors import InvalidArgument, below

MAX_SHARD_BYTES = 2**26
"""Frames and extra arrays of one shard, uncompressed, 64 MiB: what one upload may have in memory.
"""


class _Large(NamedTuple):
    """A large array as it was sent; ``beside`` begins the names of the fields beside its own."""

    tensor: tensor_pb2.Tensor
    crc32: int
    compression: int
    path: str
    beside: str


def read_shard(
    message: pb.AnchorShard, header: UploadHeader, offset: int
) -> tuple[AnchorArrays, dict[str, bytes]]:
    """The anchors of a shard, and the large arrays of it that zlib sent, as it sent them."""
    checksum, compression = message.frame_crc32, message.frame_compression
    large = {"frames": _Large(message.frames, checksum, compression, "frames", "frame_")}
    large |= _extras(message)
    small = {
        name: getattr(message, name)
        for name in SMALL_ARRAYS
        if name != "trajectory_ids" or message.HasField("trajectory_ids")
    }

    def path(name: str) -> str:
        return large[name].path if name in large else name

    tensors = {name: sent.tensor for name, sent in large.items()} | small
    forms = {name: Form(DTYPES.get(x.dtype), tuple(x.shape)) for name, x in tensors.items()}
    left = MAX_SHARD_BYTES
    anchors = forms["frames"].shape[:1]
    for name, sent in large.items():
        dtype, shape = forms[name]
        if name != "frames" and (dtype is None or shape[:1] != anchors):
            wanted = f"uint8 or float32 with {anchors[0]} anchors first is needed"
            raise InvalidArgument(sent.path, f"{list(shape[:8])} of dtype {dtype}, but {wanted}")
        with below(sent.path):
            check_array(name, forms[name], {"steps": header.history + header.horizon})
            left -= _size(sent.tensor)
            _check_size(forms["frames"].shape, left)
    check_arrays(header.history, forms, path)
    packed: dict[str, bytes] = {}
    arrays = {name: _read(sent, name, packed) for name, sent in large.items()}
    arrays |= {name: read_tensor(tensor, name) for name, tensor in small.items()}
    ids = np.arange(offset, offset + len(arrays["frames"]), dtype=np.int64)
    arrays.setdefault("trajectory_ids", ids)
    shard = AnchorArrays.of(header.history, arrays)
    check_numbers(shard, path)
    return shard, packed


def _check_size(frames: tuple[int, ...], left: int) -> None:
    """Raise InvalidArgument for frames too large, or for more arrays than may be in memory."""
    anchors, _, height, width, _ = frames
    if max(height, width) > MAX_FRAME_SIDE:
        found = f"frames have {height} x {width} pixels, over {MAX_FRAME_SIDE}"
        raise InvalidArgument("shape", found)
    if left < 0:
        smaller = "store smaller frames or fewer views, or ask for a shorter horizon"
        raise InvalidArgument(
            "shape",
            f"with it the shard holds more than {MAX_SHARD_BYTES} bytes; "
            + ("send fewer anchors in a shard" if anchors > 1 else smaller),
        )


def _size(tensor: tensor_pb2.Tensor) -> int:
    return math.prod(tensor.shape) * DTYPES[tensor.dtype].itemsize


def _extras(message: pb.AnchorShard) -> dict[str, _Large]:
    """The arrays beside those that every shard has, by name; what they hold is not looked at."""
    if len(message.extras) > MAX_EXTRA_ARRAYS:
        raise InvalidArgument("extras", f"{len(message.extras)} arrays are over {MAX_EXTRA_ARRAYS}")
    found: dict[str, _Large] = {}
    for place, extra in enumerate(message.extras):
        path = f"extras[{place}]"
        with below(path):
            if extra.name in found:
                raise InvalidArgument("name", f"{extra.name!r} is there twice")
            extra_array(extra.name)
        sent = extra.values, extra.crc32, extra.compression
        found[extra.name] = _Large(*sent, f"{path}.values", f"{path}.")
    return found


def _read(sent: _Large, name: str, packed: dict[str, bytes]) -> np.ndarray:
    """A large array, of a shape that may be allocated, packed or not; sees to its checksum."""
    data = sent.tensor.data  # a copy, every time it is asked for
    if (found := zlib.crc32(data)) != sent.crc32:
        raise InvalidArgument(
            f"{sent.beside}crc32",
            f"is {sent.crc32:#010x}, but the {name} bytes that arrived have {found:#010x}; send "
            "the shard again",
            reason="CORRUPT_SHARD",
        )
    if sent.compression not in (pb.COMPRESSION_ZLIB, pb.COMPRESSION_NONE):
        raise InvalidArgument(
            f"{sent.beside}compression",
            f"{sent.compression} is not COMPRESSION_NONE or COMPRESSION_ZLIB",
        )
    raw, size, shape = data, _size(sent.tensor), tuple(sent.tensor.shape)
    if sent.compression == pb.COMPRESSION_ZLIB:
        raw = _inflated(data, size, f"{sent.path}.data")
        packed[name] = data
    if len(raw) != size:
        raise InvalidArgument(
            f"{sent.path}.data", f"{len(raw)} bytes, but shape {list(shape)} takes {size}"
        )
    return np.frombuffer(raw, DTYPES[sent.tensor.dtype]).reshape(shape)


def _inflated(data: bytes, size: int, field: str) -> bytes:
    """Inflate data that must give ``size`` bytes; never allocates more than that."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise InvalidArgument(field, f"is not a zlib stream: {error}") from error
    if len(raw) > size or inflater.unused_data:
        raise InvalidArgument(field, f"inflates to more than the shape's {size} bytes")
    if not inflater.eof:
        raise InvalidArgument(field, f"the zlib stream breaks off after {len(raw)} bytes")
    return raw
