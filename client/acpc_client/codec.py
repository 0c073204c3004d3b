"""NumPy arrays to and from the contract's Tensor: little-endian, C-contiguous, unpadded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from acpc.v1 import tensor_pb2
from numpy.typing import ArrayLike, NDArray

from acpc_client.errors import ArgumentError, MalformedAnswer

_DTYPES: dict[int, np.dtype[Any]] = {
    tensor_pb2.DTYPE_UINT8: np.dtype("<u1"),
    tensor_pb2.DTYPE_INT32: np.dtype("<i4"),
    tensor_pb2.DTYPE_INT64: np.dtype("<i8"),
    tensor_pb2.DTYPE_FLOAT16: np.dtype("<f2"),
    tensor_pb2.DTYPE_FLOAT32: np.dtype("<f4"),
    tensor_pb2.DTYPE_FLOAT64: np.dtype("<f8"),
    tensor_pb2.DTYPE_BOOL: np.dtype("?"),
}
_CODES: dict[str, tensor_pb2.Dtype.ValueType] = {
    "uint8": tensor_pb2.DTYPE_UINT8,
    "int32": tensor_pb2.DTYPE_INT32,
    "int64": tensor_pb2.DTYPE_INT64,
    "float16": tensor_pb2.DTYPE_FLOAT16,
    "float32": tensor_pb2.DTYPE_FLOAT32,
    "float64": tensor_pb2.DTYPE_FLOAT64,
    "bool": tensor_pb2.DTYPE_BOOL,
}


def to_tensor(array: ArrayLike, name: str) -> tensor_pb2.Tensor:
    """Encodes an array of any layout and byte order.

    Args:
        array: The values.
        name: Name of the argument, for the error.

    Raises:
        ArgumentError: The dtype has no place on the wire.
    """
    values = np.asarray(array)
    code = _CODES.get(values.dtype.name)
    if code is None:
        raise ArgumentError(name, f"dtype {values.dtype} cannot be sent; use {', '.join(_CODES)}")
    data = np.ascontiguousarray(values, dtype=_DTYPES[code]).tobytes()
    return tensor_pb2.Tensor(dtype=code, shape=values.shape, data=data)


def frames(array: ArrayLike, name: str, axes: str) -> tensor_pb2.Tensor:
    """Encodes uint8 RGB frames whose axes are ``axes``, channel last.

    Floats are refused, not scaled: a guess at their range would change every number.

    Raises:
        ArgumentError: Another dtype, another number of axes, or a last axis that is not 3.
    """
    values = np.asarray(array)
    wanted = f"uint8 ({axes})"
    if values.dtype != np.uint8 or values.ndim != axes.count(",") + 1 or values.shape[-1] != 3:
        raise ArgumentError(name, f"found {values.dtype} {values.shape}, wanted {wanted}")
    return to_tensor(values, name)


def floats(array: ArrayLike, name: str, axes: str) -> tensor_pb2.Tensor:
    """Encodes real values as float32; float64 is rounded to the model's precision.

    Raises:
        ArgumentError: Not a floating dtype, or another number of axes.
    """
    values = np.asarray(array)
    if values.dtype.kind != "f" or values.ndim != axes.count(",") + 1:
        found = f"found {values.dtype} {values.shape}"
        raise ArgumentError(name, f"{found}, wanted float32 ({axes})")
    return to_tensor(values.astype(np.float32, copy=False), name)


def from_tensor(tensor: tensor_pb2.Tensor, name: str) -> NDArray[Any]:
    """Decodes a tensor without copying; the array is read-only.

    Args:
        tensor: The message.
        name: Name of the answer's field, for the error.

    Raises:
        MalformedAnswer: Unknown dtype, or a data length that does not match the shape.
    """
    dtype = _DTYPES.get(tensor.dtype)
    shape = tuple(tensor.shape)
    if dtype is None or any(side < 0 for side in shape):
        raise MalformedAnswer(
            f"{name}: dtype {tensor.dtype} with shape {shape} is not in the contract"
        )
    wanted = math.prod(shape) * dtype.itemsize
    if len(tensor.data) != wanted:
        found = f"{len(tensor.data)} bytes"
        raise MalformedAnswer(f"{name}: {found} for {dtype} {shape}, wanted {wanted}")
    values = np.frombuffer(tensor.data, dtype=dtype).reshape(shape)
    return values.astype(dtype.newbyteorder("="), copy=False)
