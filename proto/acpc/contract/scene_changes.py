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
_NAMED = re.compile(rb"sha256:[0-9a-f]{64}")  # of a length that no plate has


@dataclass(frozen=True)
class Saturation(Signed, Wire[pb.Saturation]):
    """Difference of every pixel from its luminance times ``1 + change``, saturating.

    Attributes:
        change: Relative change in [-1, 1]; -1 is grey.
    """

    kind = "saturation"
    example = -0.5
    change: float = bounded(ge=-1, le=1)


@dataclass(frozen=True)
class Cutout(VisualChange, Wire[pb.Cutout]):
    """Mid-grey patches at random places, the same in all frames of a draw.

    Attributes:
        size: Sides of each as a fraction of the frame's, in [0, 1].
        patches: How many there are, 1 to 16.
    """

    kind = "cutout"
    example = 0.15
    size: float = bounded(ge=0, le=1)
    patches: int = bounded(4, ge=1, le=16)


@dataclass(frozen=True)
class Distractor(VisualChange, Wire[pb.Distractor]):
    """A disk of a random colour that moves through the history; one path for each draw.

    Attributes:
        size: Its diameter as a fraction of the frame's shorter side, in [0, 1].
        speed: How far it moves from frame to frame, as a fraction of the frame's sides, in [0, 1].
    """

    kind = "distractor"
    example = 0.2
    size: float = bounded(ge=0, le=1)
    speed: float = bounded(0.1, ge=0, le=1)


@dataclass(frozen=True)
class Background(VisualChange, Wire[pb.Background]):
    """Random smooth colours in place of what has a colour, or what a plate of the scene shows.

    Attributes:
        strength: How far the background goes over to them, in [0, 1]; 1 replaces it.
        key: Its colour, six hexadecimal digits as of ``c4d0d8``; either this or a plate.
        tolerance: How far each channel of a pixel may be from it, of [0, 1]; a pixel up to twice as
            far counts less. In [0.01, 1].
        plate: A frame of the empty scene, uint8 (height, width, 3) in C order, of the camera's
            aspect. Jobs are shown with ``sha256:`` and its digest in its place, by which another
            job of the same server can name it.
        plate_width: Pixels in a row of the plate, at most 4096; 0 without one.
    """

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
        if self.plate and not self.names_plate and (not row or len(self.plate) % row):
            raise ArgumentError(
                "plate_width",
                f"found {self.plate_width}, but a plate of {len(self.plate)} bytes has no whole "
                "number of rows so wide, 3 bytes a pixel",
            )

    @property
    def names_plate(self) -> bool:
        """Whether the plate is named by its digest alone."""
        return _NAMED.fullmatch(self.plate) is not None

    def __str__(self) -> str:
        named = self.plate.decode()[7:] if self.names_plate else ""
        which = self.key or f"plate-{(named or hashlib.sha256(self.plate).hexdigest())[:8]}"
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
    """A random 3 x 3 convolution over all channels, mixed with the frames.

    Attributes:
        strength: Share of the convolution in the mixture, in [0, 1].
    """

    kind = "random_convolution"
    example = 0.3
    strength: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class Zoom(VisualChange, Wire[pb.Zoom]):
    """A part of the frame at a random place, enlarged to the whole frame.

    Attributes:
        cut: Share of the frame's sides that is cut away, in [0, 0.9].
    """

    kind = "zoom"
    example = 0.15
    cut: float = bounded(ge=0, le=0.9)


@dataclass(frozen=True)
class KnockedCamera(VisualChange, Wire[pb.KnockedCamera]):
    """A pinhole camera turned about its three axes, each by a random angle.

    Attributes:
        degrees: Largest angle about each axis, in [0, 15].
        field_of_view: Of the frame's longer side in degrees, in [10, 90].
    """

    kind = "knocked_camera"
    example = 4
    degrees: float = bounded(ge=0, le=15, unit="degrees")
    field_of_view: float = bounded(60.0, ge=10, le=90, unit="degrees")


@dataclass(frozen=True)
class Haze(VisualChange, Wire[pb.Haze]):
    """Haze of random, smoothly varying density; one for all frames of a draw.

    Attributes:
        strength: Share of the light that the densest haze takes, in [0, 1].
    """

    kind = "haze"
    example = 0.4
    strength: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class SaltAndPepper(VisualChange, Wire[pb.SaltAndPepper]):
    """Pixels turned black or white with equal chance, independently in every frame.

    Attributes:
        share: Share of the pixels, in [0, 1].
    """

    kind = "salt_and_pepper"
    example = 0.02
    share: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class Stutter(VisualChange, Wire[pb.Stutter]):
    """A camera that repeats frames: each but the first shows the one before it with some chance.

    Attributes:
        chance: The chance, in [0, 1].
    """

    kind = "stutter"
    example = 0.5
    chance: float = bounded(ge=0, le=1)
