"""NumPy arrays to and from the contract's Tensor, with this package's errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from acpc.contract import read_tensor, write_tensor
from acpc.v1 import tensor_pb2
from numpy.typing import ArrayLike, NDArray

from acpc_client.errors import ArgumentError, MalformedAnswer


def to_tensor(array: ArrayLike, name: str) -> tensor_pb2.Tensor:
    """Encodes an array of any layout and byte order.

    Args:
        array: The values.
        name: Name of the argument, for the error.

    Raises:
        ArgumentError: The dtype has no place on the wire.
    """
    return write_tensor(array, name)


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
    try:
        return read_tensor(tensor, name)
    except ArgumentError as error:
        raise MalformedAnswer(str(error)) from error
