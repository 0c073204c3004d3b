"""NumPy arrays as Tensor messages: little-endian, C-contiguous, unpadded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acpc.contract.errors import ArgumentError, joined
from acpc.v1 import tensor_pb2

# The contract's largest rank is 5. NumPy rejects shapes whose product overflows, empty or not.
MAX_RANK = 8
MAX_ELEMENTS = 2**40

DTYPES: dict[int, np.dtype[Any]] = {
    tensor_pb2.DTYPE_UINT8: np.dtype("u1"),
    tensor_pb2.DTYPE_INT32: np.dtype("<i4"),
    tensor_pb2.DTYPE_INT64: np.dtype("<i8"),
    tensor_pb2.DTYPE_FLOAT16: np.dtype("<f2"),
    tensor_pb2.DTYPE_FLOAT32: np.dtype("<f4"),
    tensor_pb2.DTYPE_FLOAT64: np.dtype("<f8"),
    tensor_pb2.DTYPE_BOOL: np.dtype("?"),
}
_CODES = {dtype.str[1:]: code for code, dtype in DTYPES.items()}  # of either byte order


def read_tensor(tensor: tensor_pb2.Tensor, field: str = "") -> NDArray[Any]:
    """The array of a message; shares the message's bytes and is read-only.

    Raises:
        ArgumentError: Unknown dtype, an absurd shape, or bytes that do not fill the shape; names
            the part of ``field`` at fault.
    """
    dtype, shape, data = DTYPES.get(tensor.dtype), tuple(tensor.shape), tensor.data
    if dtype is None:
        raise ArgumentError(joined(field, "dtype"), f"unknown element type {tensor.dtype}")
    if len(shape) > MAX_RANK:  # before their product, which takes long for thousands of extents
        _check_shape(shape, field)
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected or not expected or min(shape, default=1) < 0:
        _check_shape(shape, field)
        if len(data) != expected:
            raise ArgumentError(
                joined(field, "data"),
                f"{len(data)} bytes, but shape {list(shape)} of {dtype.name} takes {expected}",
            )
    values = np.frombuffer(data, dtype=dtype).reshape(shape)
    return values if dtype.isnative else values.astype(dtype.newbyteorder("="))


def _check_shape(shape: tuple[int, ...], field: str) -> None:
    problem = ""
    if len(shape) > MAX_RANK:
        problem = f"rank {len(shape)} is over {MAX_RANK}"
    elif min(shape, default=1) < 0:
        problem = f"negative extent in {list(shape)}"
    elif math.prod(max(extent, 1) for extent in shape) > MAX_ELEMENTS:
        problem = f"{list(shape)} is too large for any tensor here"
    if problem:
        raise ArgumentError(joined(field, "shape"), problem)


def write_tensor(array: ArrayLike, field: str = "") -> tensor_pb2.Tensor:
    """The message of an array of any layout and byte order.

    Raises:
        ArgumentError: The dtype has no place on the wire; names ``field``.
    """
    return tensor_pb2.Tensor(**tensor_fields(array, field))


def tensor_fields(array: ArrayLike, field: str = "") -> dict[str, Any]:
    """The fields of :func:`write_tensor`'s message."""
    values = np.asarray(array)
    layout = values.dtype.str
    code = _CODES.get(layout[1:])
    if code is None:
        names = ", ".join(dtype.name for dtype in DTYPES.values())
        raise ArgumentError(field, f"dtype {values.dtype} cannot be sent; use {names}")
    if layout[0] == ">":
        values = values.astype(DTYPES[code])
    return {"dtype": code, "shape": values.shape, "data": values.tobytes()}
