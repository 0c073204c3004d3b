"""NumPy arrays to and from the contract's Tensor, with this package's errors."""

from __future__ import annotations

from typing import Any

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
