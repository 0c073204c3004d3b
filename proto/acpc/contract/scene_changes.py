"""Changes of the scene, of where its camera looks, and of what the camera delivers."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np

from acpc.contract.errors import ArgumentError
from acpc.contract.fields import bounded, sized
from acpc.contract.messages import Wire
from acpc.contract.visual_changes import Signed, VisualChange, shown
from acpc.v1 import perturbation_pb2 as pb

_PLATE_BYTES = 3 * 2**20


@dataclass(frozen=True)
class Saturation(Signed, Wire[pb.Saturation]):
    """Difference of every pixel from its luminance times ``1 + change``, saturating."""

    kind = "saturation"
    example = -0.5
    change: float = bounded(ge=-1, le=1)


@dataclass(frozen=True)
class Cutout(VisualChange, Wire[pb.Cutout]):
    """Mid-grey patches at random places, the same in all frames of a draw."""

    kind = "cutout"
    example = 0.15
    size: float = bounded(ge=0, le=1)
    patches: int = bounded(4, ge=1, le=16)


@dataclass(frozen=True)
class Distractor(VisualChange, Wire[pb.Distractor]):
    """A disk of a random colour that moves through the history; one path for each draw."""

    kind = "distractor"
    example = 0.2
    size: float = bounded(ge=0, le=1)
    speed: float = bounded(0.1, ge=0, le=1)


@dataclass(frozen=True)
class Background(VisualChange, Wire[pb.Background]):
    """Random smooth colours in place of what has a colour, or what a plate of the scene shows."""

    kind = "background"
    example = "0.5@c4d0d8"
    strength: float = bounded(ge=0, le=1)
    key: str = sized("", most=6)
    tolerance: float = bounded(0.1, ge=0.01, le=1)
    plate: bytes = sized(b"", most=_PLATE_BYTES)
    plate_width: int = bounded(0, ge=0, le=4096)

    def check_rules(self) -> None:
        """A key or a plate is given, and may be one."""
        if bool(self.key) == bool(self.plate):
            found = "both" if self.key else "neither"
            raise ArgumentError("key", f"found {found} of key and plate, wanted one of them")
        if self.key and not re.fullmatch("[0-9a-f]{6}", self.key):
            raise ArgumentError(
                "key", f"found {self.key!r}, wanted six digits of 0-9a-f, for example c4d0d8"
            )
        row = 3 * self.plate_width
        if self.plate and (not row or len(self.plate) % row):
            raise ArgumentError(
                "plate_width",
                f"found {self.plate_width}, but a plate of {len(self.plate)} bytes has no whole "
                "number of rows so wide, 3 bytes a pixel",
            )

    def __str__(self) -> str:
        which = self.key or f"plate-{hashlib.sha256(self.plate).hexdigest()[:8]}"
        others = [] if self.tolerance == 0.1 else [shown(self.tolerance)]
        return f"{self.kind}:" + "@".join([shown(self.strength), which, *others])


def plate_from(path: str) -> dict[str, bytes | int]:
    """Reads the parameters ``plate`` and ``plate_width`` from an .npy file, uint8 (h, w, 3).

    Raises ArgumentError: There is no such file, or it holds something else.
    """
    try:
        plate = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError("plate", f"{path} is no readable .npy file: {error}") from error
    if plate.dtype != np.uint8 or plate.ndim != 3 or plate.shape[2] != 3:
        raise ArgumentError(
            "plate", f"{path} holds {plate.dtype} {plate.shape}, wanted uint8 (height, width, 3)"
        )
    if plate.nbytes > _PLATE_BYTES:
        raise ArgumentError("plate", f"{path} holds {plate.nbytes} bytes, over {_PLATE_BYTES}")
    return {"plate": plate.tobytes(), "plate_width": plate.shape[1]}


@dataclass(frozen=True)
class RandomConvolution(VisualChange, Wire[pb.RandomConvolution]):
    """A random 3 x 3 convolution over all channels, mixed with the frames."""

    kind = "random_convolution"
    example = 0.3
    strength: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class Zoom(VisualChange, Wire[pb.Zoom]):
    """A part of the frame at a random place, enlarged to the whole frame."""

    kind = "zoom"
    example = 0.15
    cut: float = bounded(ge=0, le=0.9)


@dataclass(frozen=True)
class KnockedCamera(VisualChange, Wire[pb.KnockedCamera]):
    """A pinhole camera turned about its three axes, each by a random angle."""

    kind = "knocked_camera"
    example = 4
    degrees: float = bounded(ge=0, le=15, unit="degrees")
    field_of_view: float = bounded(60.0, ge=10, le=90, unit="degrees")


@dataclass(frozen=True)
class Haze(VisualChange, Wire[pb.Haze]):
    """Haze of random, smoothly varying density; one for all frames of a draw."""

    kind = "haze"
    example = 0.4
    strength: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class SaltAndPepper(VisualChange, Wire[pb.SaltAndPepper]):
    """Pixels turned black or white with equal chance, independently in every frame."""

    kind = "salt_and_pepper"
    example = 0.02
    share: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class Stutter(VisualChange, Wire[pb.Stutter]):
    """A camera that repeats frames: each but the first shows the one before it with some chance."""

    kind = "stutter"
    example = 0.5
    chance: float = bounded(ge=0, le=1)
