"""The shards of an upload as arrays. Nothing in them is believed."""

from __future__ import annotations

import math
import zlib

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
"""Frames of one shard, uncompressed, 64 MiB: what one upload may have in memory."""


def read_shard(
    message: pb.AnchorShard, header: UploadHeader, offset: int
) -> tuple[AnchorArrays, dict[str, bytes]]:
    """The anchors of a shard, and the large arrays of it that zlib sent, as it sent them."""
    frames = _form(message.frames)
    _check_frames(frames, header)
    anchors = frames.shape[0]
    small = {
        name: getattr(message, name)
        for name in SMALL_ARRAYS
        if name != "trajectory_ids" or message.HasField("trajectory_ids")
    }
    extras = _extras(message, anchors)
    places = {name: f"extras[{place}].values" for place, name in enumerate(extras)}

    def path(name: str) -> str:
        return places.get(name, name)

    tensors = {"frames": message.frames, **small} | {x.name: x.values for x in extras.values()}
    forms = {name: _form(tensor) for name, tensor in tensors.items()}
    check_arrays(header.history, forms, path)
    left = MAX_SHARD_BYTES
    for name in ("frames", *extras):
        left -= math.prod(forms[name].shape) * DTYPES[tensors[name].dtype].itemsize
        if left < 0:
            raise InvalidArgument(
                f"{path(name)}.shape",
                f"with it the shard holds more than {MAX_SHARD_BYTES} bytes; send fewer "
                "anchors in a shard, or fewer groups of views in a set",
            )
    packed: dict[str, bytes] = {}
    arrays = {"frames": _large(message, "frames", "frames", packed)}
    arrays |= {name: read_tensor(tensor, name) for name, tensor in small.items()}
    for place, (name, extra) in enumerate(extras.items()):
        with below(f"extras[{place}]"):
            arrays[name] = _large(extra, "values", name, packed)
    arrays.setdefault("trajectory_ids", np.arange(offset, offset + anchors, dtype=np.int64))
    shard = AnchorArrays.of(header.history, arrays)
    check_numbers(shard, path)
    return shard, packed


def _form(tensor: tensor_pb2.Tensor) -> Form:
    """What a tensor says it is."""
    return Form(DTYPES.get(tensor.dtype), tuple(tensor.shape))


def _extras(message: pb.AnchorShard, anchors: int) -> dict[str, pb.ShardArray]:
    """The arrays beside those that every shard has, by name; what they hold is not looked at."""
    if len(message.extras) > MAX_EXTRA_ARRAYS:
        raise InvalidArgument("extras", f"{len(message.extras)} arrays are over {MAX_EXTRA_ARRAYS}")
    found: dict[str, pb.ShardArray] = {}
    for place, extra in enumerate(message.extras):
        with below(f"extras[{place}]"):
            if extra.name in found:
                raise InvalidArgument("name", f"{extra.name!r} is there twice")
            extra_array(extra.name)
            dtype, shape = _form(extra.values)
            if dtype is None or shape[:1] != (anchors,):
                raise InvalidArgument(
                    "values",
                    f"{list(shape[:8])} of dtype {extra.values.dtype}, but uint8 or float32 with "
                    f"{anchors} anchors first is needed",
                )
        found[extra.name] = extra
    return found


def _large(
    message: pb.AnchorShard | pb.ShardArray,
    field: str,
    name: str,
    packed: dict[str, bytes],
) -> np.ndarray:
    """A large array, of a shape that may be allocated, packed or not; sees to its checksum."""
    tensor: tensor_pb2.Tensor = getattr(message, field)
    before = "frame_" if isinstance(message, pb.AnchorShard) else ""
    dtype, shape = DTYPES[tensor.dtype], tuple(tensor.shape)
    size = math.prod(shape) * dtype.itemsize
    data = tensor.data  # a copy, every time it is asked for
    found, wanted = zlib.crc32(data), getattr(message, f"{before}crc32")
    if found != wanted:
        raise InvalidArgument(
            f"{before}crc32",
            f"is {wanted:#010x}, but the {name} bytes that arrived have {found:#010x}; send the "
            "shard again",
            reason="CORRUPT_SHARD",
        )
    how = getattr(message, f"{before}compression")
    if how not in (pb.COMPRESSION_ZLIB, pb.COMPRESSION_NONE):
        raise InvalidArgument(
            f"{before}compression", f"{how} is not COMPRESSION_NONE or COMPRESSION_ZLIB"
        )
    raw = data
    if how == pb.COMPRESSION_ZLIB:
        raw = _inflated(data, size, f"{field}.data")
        packed[name] = data
    if len(raw) != size:
        raise InvalidArgument(
            f"{field}.data", f"{len(raw)} bytes, but shape {list(shape)} takes {size}"
        )
    return np.frombuffer(raw, dtype).reshape(shape)


def _check_frames(frames: Form, header: UploadHeader) -> None:
    """Raise InvalidArgument for frames that the header does not say, or of too many bytes."""
    with below("frames"):
        check_array("frames", frames, {"steps": header.history + header.horizon})
    shape = frames.shape
    if max(shape[2:4]) > MAX_FRAME_SIDE:
        raise InvalidArgument(
            "frames.shape", f"frames have {shape[2]} x {shape[3]} pixels, over {MAX_FRAME_SIDE}"
        )
    if math.prod(shape) > MAX_SHARD_BYTES:
        smaller = "store smaller frames, or ask for a shorter horizon"
        raise InvalidArgument(
            "frames.shape",
            f"{list(shape)} holds {math.prod(shape)} bytes, over {MAX_SHARD_BYTES}; "
            + ("send fewer anchors in a shard" if shape[0] > 1 else smaller),
        )


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
