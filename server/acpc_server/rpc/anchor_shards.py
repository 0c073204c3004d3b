"""The shards of an upload as batches of anchors. Nothing in them is believed."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from acpc.contract import DTYPES, MAX_EXTRA_ARRAYS, check_extra, read_tensor
from acpc.datasets import MAX_FRAME_SIDE
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import tensor_pb2

from acpc_server.data import AnchorBatch
from acpc_server.data.anchor_sets import UploadHeader
from acpc_server.errors import InvalidArgument, below

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
) -> tuple[AnchorBatch, dict[str, bytes]]:
    """The anchors of a shard, and the large arrays of it that zlib sent, as it sent them."""
    shape = _frames_shape(message.frames, header)
    packed: dict[str, bytes] = {}
    frames = _large(message, "frames", "frames", np.dtype(np.uint8), packed)
    every = len(message.endpoint_states.shape) == 3  # states and labels of every future frame
    arrays = {
        field: _exact(
            getattr(message, field),
            field,
            dtype,
            shape[0],
            axes + (every and field in ("endpoint_states", "labels")),
        )
        for field, dtype, axes in _SMALL
    }
    trajectories = np.arange(offset, offset + shape[0], dtype=np.int64)
    if message.HasField("trajectory_ids"):
        trajectories = _exact(message.trajectory_ids, "trajectory_ids", np.int64, shape[0], 0)
    batch = AnchorBatch(
        history=header.history,
        frames=frames,
        **arrays,
        trajectory_ids=trajectories,
        arrays=_extras(message, frames, header.history, packed),
    )
    return batch, packed


def _extras(
    message: pb.AnchorShard, frames: np.ndarray, history: int, packed: dict[str, bytes]
) -> dict[str, np.ndarray]:
    """The arrays beside those that every shard has; what zlib sent goes to ``packed``."""
    if len(message.extras) > MAX_EXTRA_ARRAYS:
        raise InvalidArgument("extras", f"{len(message.extras)} arrays are over {MAX_EXTRA_ARRAYS}")
    found: dict[str, np.ndarray] = {}
    left = MAX_SHARD_BYTES - frames.nbytes
    for place, extra in enumerate(message.extras):
        name, shape = extra.name, tuple(extra.values.shape)
        with below(f"extras[{place}]"):
            if name in found:
                raise InvalidArgument("name", f"{name!r} is there twice")
            dtype = DTYPES.get(extra.values.dtype)
            if dtype is None or not shape or shape[0] != len(frames):
                raise InvalidArgument(
                    "values",
                    f"{list(shape)[:8]} of dtype {extra.values.dtype}, but uint8 or float32 with "
                    f"{len(frames)} anchors first is needed",
                )
            try:
                check_extra(name, dtype, shape[1:], history, frames.shape[1:])
            except InvalidArgument as error:
                raise (error if error.field == "name" else error.below("values")) from error
            left -= math.prod(shape) * dtype.itemsize
            if left < 0:
                raise InvalidArgument(
                    "values.shape",
                    f"with it the shard holds more than {MAX_SHARD_BYTES} bytes; send fewer "
                    "anchors in a shard, or fewer groups of views in a set",
                )
            found[name] = _large(extra, "values", name, dtype, packed)
    return found


def _large(
    message: pb.AnchorShard | pb.ShardArray,
    field: str,
    name: str,
    dtype: np.dtype[Any],
    packed: dict[str, bytes],
) -> np.ndarray:
    """A large array, of a shape that may be allocated, packed or not; sees to its checksum."""
    tensor: tensor_pb2.Tensor = getattr(message, field)
    before = "frame_" if isinstance(message, pb.AnchorShard) else ""
    shape = tuple(tensor.shape)
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
        smaller = "store smaller frames, or ask for a shorter horizon"
        raise InvalidArgument(
            "frames.shape",
            f"{list(shape)} holds {math.prod(shape)} bytes, over {MAX_SHARD_BYTES}; "
            + ("send fewer anchors in a shard" if shape[0] > 1 else smaller),
        )
    return shape


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


def _exact(
    tensor: tensor_pb2.Tensor, field: str, dtype: type[Any], count: int, axes: int
) -> np.ndarray:
    """An array of one element type: converting would change the digest."""
    values = read_tensor(tensor, field)
    if values.dtype != dtype:
        wanted = np.dtype(dtype).name
        raise InvalidArgument(f"{field}.dtype", f"{values.dtype.name}, but {wanted} is needed")
    if values.ndim != 1 + axes or values.shape[0] != count or 0 in values.shape:
        raise InvalidArgument(
            f"{field}.shape",
            f"{list(values.shape)}, but {1 + axes} axes, the first of {count}, are needed",
        )
    return values
