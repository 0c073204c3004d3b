"""The visual changes that the server draws: parameters, ranges, severity and examples.

Adding a kind: a message in perturbation.proto, which says what it does, a class here that ``Part``
lists, the function in the server's ``perturb``, and an independent one in the tests. All else
follows from the class.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import TypeAlias

import numpy as np

from acpc.contract.errors import ArgumentError
from acpc.contract.fields import bounded
from acpc.contract.messages import Wire
from acpc.contract.visual_changes import Registered, VisualChange, shown
from acpc.v1 import perturbation_pb2 as pb

__all__ = [
    "Background", "Brightness", "ColorJitter", "Contrast", "Cutout", "DefocusBlur",
    "Distractor", "Gamma", "GaussianBlur", "GaussianNoise", "Haze", "Identity", "Jpeg",
    "KnockedCamera", "MotionBlur", "Occlusion", "RandomConvolution", "RandomShift", "Resize",
    "SaltAndPepper", "Saturation", "Shadow", "Stutter", "Zoom",
]  # fmt: skip
"""Every kind here; the faces of the contract and of the client have them too."""
_PLATE_BYTES = 3 * 2**20
_NAMED = re.compile(rb"sha256:[0-9a-f]{64}")  # of a length that no plate has


class Identity(VisualChange, Wire[pb.Identity]):
    first = 0

    def __str__(self) -> str:
        return self.kind


class GaussianNoise(VisualChange, Wire[pb.GaussianNoise]):
    examples = (0.02, 0.08, 0.16)
    sigma: float = bounded(ge=0, le=1, unit="pixel units")


class GaussianBlur(VisualChange, Wire[pb.GaussianBlur]):
    examples, neutral = (5, 15, 29), 1
    kernel_size: int = bounded(ge=1, le=4095, unit="pixels")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kernel_size", self.kernel_size | 1)

    @property
    def severity(self) -> float:
        """The kernel size."""
        return float(self.kernel_size)


class Resize(VisualChange, Wire[pb.Resize]):
    examples, neutral = (0.5, 0.25, 0.1), 1
    scale: float = bounded(gt=0, le=1)


class Brightness(VisualChange, Wire[pb.Brightness]):
    examples = (-0.15, -0.3, -0.6)
    change: float = bounded(ge=-1, le=1)


class Contrast(VisualChange, Wire[pb.Contrast]):
    examples = (0.2, 0.4, 0.8)
    change: float = bounded(ge=-1, le=1)


class ColorJitter(VisualChange, Wire[pb.ColorJitter]):
    examples = (0.2, 0.5, 1)
    strength: float = bounded(ge=0, le=1)


class Jpeg(VisualChange, Wire[pb.Jpeg]):
    examples, neutral = (50, 20, 4), 100
    quality: int = bounded(ge=1, le=100)


class Occlusion(VisualChange, Wire[pb.Occlusion]):
    examples = (0.15, 0.3, 0.6)
    size: float = bounded(ge=0, le=1)


class RandomShift(VisualChange, Wire[pb.RandomShift]):
    examples = (2, 4, 8)
    pixels: int = bounded(ge=0, le=4095, unit="pixels")


class DefocusBlur(VisualChange, Wire[pb.DefocusBlur]):
    examples = (1, 2.5, 5)
    radius: float = bounded(ge=0, le=32, unit="pixels")


class MotionBlur(VisualChange, Wire[pb.MotionBlur]):
    examples = (5, 9, 18)
    length: float = bounded(ge=0, le=256, unit="pixels")
    angle: float = bounded(0.0, ge=0, lt=180, unit="degrees")


class Shadow(VisualChange, Wire[pb.Shadow]):
    examples = (0.25, 0.5, 1)
    strength: float = bounded(ge=0, le=1)
    softness: float = bounded(0.25, ge=0, le=1)


class Gamma(VisualChange, Wire[pb.Gamma]):
    examples, neutral = (1.2, 1.5, 2), 1
    exponent: float = bounded(ge=0.1, le=10)

    @property
    def severity(self) -> float:
        """``|log2(exponent)|``: a grid of both directions is one grid."""
        return abs(math.log2(self.exponent))


class Saturation(VisualChange, Wire[pb.Saturation]):
    examples = (-0.25, -0.5, -1)
    change: float = bounded(ge=-1, le=1)


class Cutout(VisualChange, Wire[pb.Cutout]):
    examples = (0.08, 0.15, 0.3)
    size: float = bounded(ge=0, le=1)
    patches: int = bounded(4, ge=1, le=16)


class Distractor(VisualChange, Wire[pb.Distractor]):
    examples = (0.1, 0.2, 0.4)
    size: float = bounded(ge=0, le=1)
    speed: float = bounded(0.1, ge=0, le=1)


class Background(VisualChange, Wire[pb.Background]):
    examples = ("0.25@c4d0d8", "0.5@c4d0d8", "1@c4d0d8")
    strength: float = bounded(ge=0, le=1)
    key: str = bounded("", most=6)
    tolerance: float = bounded(0.1, ge=0.01, le=1)
    plate: bytes = bounded(b"", most=_PLATE_BYTES)
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


class RandomConvolution(VisualChange, Wire[pb.RandomConvolution]):
    examples = (0.15, 0.3, 0.6)
    strength: float = bounded(ge=0, le=1)


class Zoom(VisualChange, Wire[pb.Zoom]):
    examples = (0.08, 0.15, 0.3)
    cut: float = bounded(ge=0, le=0.9)


class KnockedCamera(VisualChange, Wire[pb.KnockedCamera]):
    examples = (2, 4, 8)
    degrees: float = bounded(ge=0, le=15, unit="degrees")
    field_of_view: float = bounded(60.0, ge=10, le=90, unit="degrees")


class Haze(VisualChange, Wire[pb.Haze]):
    examples = (0.2, 0.4, 0.8)
    strength: float = bounded(ge=0, le=1)


class SaltAndPepper(VisualChange, Wire[pb.SaltAndPepper]):
    examples = (0.01, 0.02, 0.04)
    share: float = bounded(ge=0, le=1)


class Stutter(VisualChange, Wire[pb.Stutter]):
    examples = (0.2, 0.5, 1)
    chance: float = bounded(ge=0, le=1)


Part: TypeAlias = (
    Identity
    | GaussianNoise
    | GaussianBlur
    | Resize
    | Brightness
    | Contrast
    | ColorJitter
    | Jpeg
    | Occlusion
    | RandomShift
    | DefocusBlur
    | MotionBlur
    | Shadow
    | Gamma
    | Saturation
    | Cutout
    | Distractor
    | Background
    | RandomConvolution
    | Zoom
    | KnockedCamera
    | Haze
    | SaltAndPepper
    | Stutter
    | Registered
)
"""What the server can draw."""
