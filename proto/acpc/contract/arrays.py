"""Declares dtype and axes of array fields once, and checks arrays against them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acpc.contract.errors import ArgumentError


@dataclass(frozen=True)
class Axes:
    """What an array field holds.

    Attributes:
        names: The axes, comma-separated, for example ``"h, height, width, 3"``.
        of_frames: uint8 RGB with the channel last; otherwise finite float32.
    """

    names: str
    of_frames: bool

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
        with np.errstate(over="ignore"):
            # A message's bytes are read-only, which PyTorch warns of.
            return array.astype(np.float32, copy=not array.flags.writeable)

    def check(self, array: NDArray[Any], name: str) -> None:
        """Checks dtype, axes and values.

        Raises:
            ArgumentError: Names ``<name>.dtype``, ``.shape`` or ``.data``.
        """
        kind = "u1" if self.of_frames else "f4"
        found = f"found {array.dtype} {list(array.shape)}, wanted {self.wanted}"
        if array.dtype != kind:
            raise ArgumentError(f"{name}.dtype", found)
        rank = self.names.count(",") + 1
        if array.ndim != rank or (self.of_frames and (array.shape[-1] != 3 or 0 in array.shape)):
            raise ArgumentError(f"{name}.shape", f"{found}{', not empty' * self.of_frames}")
        if not self.of_frames and not np.isfinite(array).all():
            index = np.argwhere(~np.isfinite(array))[0].tolist()
            raise ArgumentError(f"{name}.data", f"not finite in float32 at index {index}")


def frames(axes: str, default: Any = MISSING) -> Any:
    """A dataclass field of frames, uint8 RGB, with the axes ``axes``, channel last."""
    return field(default=default, metadata={"array": Axes(axes, of_frames=True)})


def floats(axes: str, default: Any = MISSING) -> Any:
    """A dataclass field of finite float32 values with the axes ``axes``."""
    return field(default=default, metadata={"array": Axes(axes, of_frames=False)})
