"""Arrays of fields: their dtype and axes, declared once, and their Tensor messages.

A Tensor is little-endian, C-contiguous and unpadded.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from acpc.arrays import NDArray
from acpc.contract.errors import ArgumentError, joined
from acpc.v1 import tensor_pb2

# The contract's largest rank is 5. NumPy rejects shapes whose product overflows, empty or not.
MAX_RANK = 8
MAX_ELEMENTS = 2**40

Array: TypeAlias = NDArray[Any]  # an array of any dtype and shape

UINT8, FLOAT32 = np.dtype("u1"), np.dtype("f4")
DTYPES: dict[int, np.dtype[np.generic]] = {
    tensor_pb2.DTYPE_UINT8: np.dtype("u1"),
    tensor_pb2.DTYPE_INT32: np.dtype("<i4"),
    tensor_pb2.DTYPE_INT64: np.dtype("<i8"),
    tensor_pb2.DTYPE_FLOAT16: np.dtype("<f2"),
    tensor_pb2.DTYPE_FLOAT32: np.dtype("<f4"),
    tensor_pb2.DTYPE_FLOAT64: np.dtype("<f8"),
    tensor_pb2.DTYPE_BOOL: np.dtype("?"),
}
_CODES = {dtype.str[1:]: code for code, dtype in DTYPES.items()}  # of either byte order


def read_tensor(tensor: tensor_pb2.Tensor, path: str = "") -> Array:
    """The array of a message; shares the message's bytes and is read-only.

    Raises ArgumentError: Unknown dtype, an absurd shape, or bytes that do not fill the shape; names
    the part of ``path`` at fault.
    """
    dtype, shape, data = DTYPES.get(tensor.dtype), tuple(tensor.shape), tensor.data
    if dtype is None:
        known = ", ".join(f"{code} ({kind.name})" for code, kind in DTYPES.items())
        found = tensor.dtype or "no tensor, or one without a dtype"
        raise ArgumentError(joined(path, "dtype"), f"found {found}; wanted {known}")
    problem = ""
    if len(shape) > MAX_RANK:  # before their product, which takes long for thousands of extents
        problem = f"rank {len(shape)} is over {MAX_RANK}"
    elif min(shape, default=1) < 0:
        problem = f"negative extent in {list(shape)}"
    elif math.prod(max(extent, 1) for extent in shape) > MAX_ELEMENTS:
        problem = f"{list(shape)} is too large for any tensor here"
    if problem:
        raise ArgumentError(joined(path, "shape"), problem)
    if len(data) != (expected := math.prod(shape) * dtype.itemsize):
        wrong = f"{len(data)} bytes, but shape {list(shape)} of {dtype.name} takes {expected}"
        raise ArgumentError(joined(path, "data"), wrong)
    values = np.frombuffer(data, dtype=dtype).reshape(shape)
    return values if dtype.isnative else values.astype(dtype.newbyteorder("="))


def write_tensor(array: ArrayLike, path: str = "") -> tensor_pb2.Tensor:
    """The message of an array of any layout and byte order.

    Raises ArgumentError: The dtype has no place on the wire; names ``path``.
    """
    return tensor_pb2.Tensor(**tensor_fields(array, path))


def tensor_fields(array: ArrayLike, path: str = "") -> dict[str, Any]:
    """The fields of :func:`write_tensor`'s message."""
    values = np.asarray(array)
    layout = values.dtype.str
    code = _CODES.get(layout[1:])
    if code is None:
        names = ", ".join(dtype.name for dtype in DTYPES.values())
        raise ArgumentError(path, f"dtype {values.dtype} cannot be sent; use {names}")
    if layout[0] == ">":
        values = values.astype(DTYPES[code])
    return {"dtype": code, "shape": values.shape, "data": values.tobytes()}


@dataclass(frozen=True)
class Axes:
    """Axes and dtype of an array field."""

    names: str  # comma-separated, for example "h, height, width, 3"
    of_frames: bool  # uint8 RGB with the channel last; otherwise finite float32

    def converted(self, value: object) -> Array:
        """The value as an array; real values rounded to float32, nothing else converted.

        Floats are no frames: a guess at their range would change every number.
        """
        array = np.asarray(value)
        if self.of_frames or array.dtype.kind != "f":
            return array
        if array.dtype == FLOAT32:  # a message's bytes are read-only, which PyTorch warns of
            return array if array.flags.writeable else array.copy()
        with np.errstate(over="ignore"):
            return array.astype(FLOAT32)

    def check(self, array: Array, name: str) -> None:
        """Checks dtype, axes and values.

        Raises ArgumentError: Names ``<name>.dtype``, ``.shape`` or ``.data``.
        """
        shape, dtype = array.shape, UINT8 if self.of_frames else FLOAT32
        fits = len(shape) == self.names.count(",") + 1
        if self.of_frames:
            fits = fits and shape[-1] == 3 and 0 not in shape
        if array.dtype != dtype or not fits:
            wrong = "shape" if array.dtype == dtype else "dtype"
            empty = ", not empty" if self.of_frames and wrong == "shape" else ""
            wanted = f"wanted {dtype} ({self.names}){empty}"
            raise ArgumentError(f"{name}.{wrong}", f"found {array.dtype} {list(shape)}, {wanted}")
        if not self.of_frames and not np.isfinite(array).all():
            index = np.argwhere(~np.isfinite(array))[0].tolist()
            raise ArgumentError(f"{name}.data", f"not finite in float32 at index {index}")


def frames(axes: str, default: object = MISSING) -> Array:
    """A dataclass field of frames, uint8 RGB, with the axes ``axes``, channel last."""
    return field(default=cast("Array", default), metadata={"array": Axes(axes, of_frames=True)})


def floats(axes: str, default: object = MISSING) -> Array:
    """A dataclass field of finite float32 values with the axes ``axes``."""
    return field(default=cast("Array", default), metadata={"array": Axes(axes, of_frames=False)})
