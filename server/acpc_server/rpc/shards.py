"""A shard of an upload, out of the wire's message. Nothing in it is believed."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from acpc.contract import read_tensor
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import tensor_pb2

from acpc_server.data import MAX_FRAME_SIDE, AnchorBatch
from acpc_server.data.anchor_sets import UploadHeader
from acpc_server.errors import InvalidArgument

MAX_SHARD_BYTES = 2**26
"""Frames of one shard, uncompressed, 64 MiB: what one upload may have in memory."""

# Field, element type, axes after the anchors.
_SMALL: tuple[tuple[str, type[Any], int], ...] = (
    ("action_blocks", np.float32, 2),
    ("endpoint_states", np.float64, 1),
    ("labels", np.int64, 0),
    ("anchor_ids", np.int64, 0),
)


def read_shard(
    message: pb.AnchorShard, header: UploadHeader, offset: int
) -> tuple[AnchorBatch, bytes | None]:
    """The anchors of a shard, and their frames as zlib sent them, None when sent plain."""
    shape = _frames_shape(message.frames, header)
    data = message.frames.data  # a copy, every time it is asked for
    found = zlib.crc32(data)
    if found != message.frame_crc32:
        raise InvalidArgument(
            "frame_crc32",
            f"is {message.frame_crc32:#010x}, but the frame bytes that arrived have {found:#010x}; "
            "send the shard again",
            reason="CORRUPT_SHARD",
        )
    packed = message.frame_compression == pb.COMPRESSION_ZLIB
    raw = _inflated(data, math.prod(shape)) if packed else data
    if not packed and message.frame_compression != pb.COMPRESSION_NONE:
        raise InvalidArgument(
            "frame_compression",
            f"{message.frame_compression} is not COMPRESSION_NONE or COMPRESSION_ZLIB",
        )
    if len(raw) != math.prod(shape):
        raise InvalidArgument(
            "frames.data", f"{len(raw)} bytes, but shape {list(shape)} takes {math.prod(shape)}"
        )
    arrays = {
        field: _exact(getattr(message, field), field, dtype, (shape[0],), axes)
        for field, dtype, axes in _SMALL
    }
    trajectories = np.arange(offset, offset + shape[0], dtype=np.int64)
    if message.HasField("trajectory_ids"):
        trajectories = _exact(message.trajectory_ids, "trajectory_ids", np.int64, (shape[0],), 0)
    frames = np.frombuffer(raw, np.uint8).reshape(shape)
    batch = AnchorBatch(
        history=header.history, frames=frames, **arrays, trajectory_ids=trajectories
    )
    return batch, data if packed else None


def _frames_shape(tensor: tensor_pb2.Tensor, header: UploadHeader) -> tuple[int, ...]:
    """The declared shape, known to be one that may be allocated."""
    if tensor.dtype != tensor_pb2.DTYPE_UINT8:
        raise InvalidArgument("frames.dtype", "frames must be uint8")
    shape, steps = tuple(tensor.shape), header.history + header.horizon
    wanted = f"(anchors, {steps}, height, width, 3)"
    if len(shape) != 5 or shape[1] != steps or shape[4] != 3 or min(shape) < 1:
        raise InvalidArgument("frames.shape", f"{list(shape[:8])}, but {wanted} is needed")
    if max(shape[2:4]) > MAX_FRAME_SIDE:
        raise InvalidArgument(
            "frames.shape", f"frames have {shape[2]} x {shape[3]} pixels, over {MAX_FRAME_SIDE}"
        )
    if math.prod(shape) > MAX_SHARD_BYTES:
        raise InvalidArgument(
            "frames.shape",
            f"{list(shape)} holds {math.prod(shape)} bytes, over {MAX_SHARD_BYTES}; send fewer "
            "anchors in a shard",
        )
    return shape


def _inflated(data: bytes, size: int) -> bytes:
    """What zlib sent, which must be ``size`` bytes; never allocates more than that."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise InvalidArgument("frames.data", f"is not a zlib stream: {error}") from error
    if len(raw) > size or inflater.unused_data:
        raise InvalidArgument("frames.data", f"inflates to more than the shape's {size} bytes")
    if not inflater.eof:
        raise InvalidArgument("frames.data", f"the zlib stream breaks off after {len(raw)} bytes")
    return raw


def _exact(
    tensor: tensor_pb2.Tensor, field: str, dtype: type[Any], leading: tuple[int, ...], axes: int
) -> np.ndarray:
    """An array of one element type: converting would change the digest."""
    values = read_tensor(tensor, field)
    if values.dtype != dtype:
        wanted = np.dtype(dtype).name
        raise InvalidArgument(f"{field}.dtype", f"{values.dtype.name}, but {wanted} is needed")
    if values.ndim != 1 + axes or values.shape[0] != leading[0] or 0 in values.shape:
        raise InvalidArgument(
            f"{field}.shape",
            f"{list(values.shape)}, but {1 + axes} axes, the first of {leading[0]}, are needed",
        )
    return values
