"""Declares dtype and axes of array fields once, and checks arrays against them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acpc.contract.errors import ArgumentError

UINT8, FLOAT32 = np.dtype("u1"), np.dtype("f4")


@dataclass(frozen=True)
class Axes:
    """What an array field holds.

    Attributes:
        names: The axes, comma-separated, for example ``"h, height, width, 3"``.
        of_frames: uint8 RGB with the channel last; otherwise finite float32.
    """

    names: str
    of_frames: bool

    @cached_property
    def rank(self) -> int:
        """Number of axes."""
        return self.names.count(",") + 1

    @property
    def wanted(self) -> str:
        """Dtype and axes in words."""
        return f"{'uint8' if self.of_frames else 'float32'} ({self.names})"

    def converted(self, value: Any) -> NDArray[Any]:
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

    def check(self, array: NDArray[Any], name: str) -> None:
        """Checks dtype, axes and values.

        Raises:
            ArgumentError: Names ``<name>.dtype``, ``.shape`` or ``.data``.
        """
        shape = array.shape
        wrong = ""
        if array.dtype != (UINT8 if self.of_frames else FLOAT32):
            wrong = "dtype"
        elif len(shape) != self.rank or (self.of_frames and (shape[-1] != 3 or 0 in shape)):
            wrong = "shape"
        if wrong:
            empty = ", not empty" if self.of_frames and wrong == "shape" else ""
            found = f"found {array.dtype} {list(shape)}, wanted {self.wanted}{empty}"
            raise ArgumentError(f"{name}.{wrong}", found)
        if not self.of_frames and not np.isfinite(array).all():
            index = np.argwhere(~np.isfinite(array))[0].tolist()
            raise ArgumentError(f"{name}.data", f"not finite in float32 at index {index}")


def frames(axes: str, default: Any = MISSING) -> Any:
    """A dataclass field of frames, uint8 RGB, with the axes ``axes``, channel last."""
    return field(default=default, metadata={"array": Axes(axes, of_frames=True)})


def floats(axes: str, default: Any = MISSING) -> Any:
    """A dataclass field of finite float32 values with the axes ``axes``."""
    return field(default=default, metadata={"array": Axes(axes, of_frames=False)})
