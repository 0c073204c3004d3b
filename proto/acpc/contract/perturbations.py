"""The visual changes a request can name: parameters, ranges, severity, short text form, digest.

Each class is one kind of ``PerturbationSpec`` in perturbation.proto; docs/perturbations.md defines
them and the server's ``perturb`` package applies them. A grid of severities of one kind shares its
random numbers. Adding a kind: a message in perturbation.proto, a class here that ``Part`` lists,
and a function in the server's ``perturb`` package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from acpc.contract.fields import bounded
from acpc.contract.messages import Wire
from acpc.contract.scene_changes import (
    Background,
    Cutout,
    Distractor,
    Haze,
    KnockedCamera,
    RandomConvolution,
    SaltAndPepper,
    Saturation,
    Stutter,
    Zoom,
)
from acpc.contract.visual_changes import Registered, Signed, VisualChange
from acpc.v1 import perturbation_pb2 as pb


@dataclass(frozen=True)
class Identity(VisualChange, Wire[pb.Identity]):
    """The unchanged view. Every distance it yields is zero."""

    kind = "identity"

    @property
    def severity(self) -> float:
        """Zero."""
        return 0.0

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class GaussianNoise(VisualChange, Wire[pb.GaussianNoise]):
    """Independent noise on every pixel, channel and frame; severity ``sigma``."""

    kind = "gaussian_noise"
    example = 0.08
    sigma: float = bounded(ge=0, le=1, unit="pixel units")


@dataclass(frozen=True)
class GaussianBlur(VisualChange, Wire[pb.GaussianBlur]):
    """Gaussian blur, sigma 0.3 ((k - 1) 0.5 - 1) + 0.8; an even k becomes the next odd one."""

    kind = "gaussian_blur"
    example = 15
    kernel_size: int = bounded(ge=1, le=4095, unit="pixels")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kernel_size", self.kernel_size | 1)

    @property
    def changes_nothing(self) -> bool:
        """Whether the kernel is one pixel."""
        return self.kernel_size == 1


@dataclass(frozen=True)
class Resize(VisualChange, Wire[pb.Resize]):
    """Bilinear to ``max(1, round(side * scale))`` and back, without antialiasing."""

    kind = "resize"
    example = 0.25
    scale: float = bounded(gt=0, le=1)

    @property
    def severity(self) -> float:
        """``1 - scale``."""
        return 1.0 - self.scale


@dataclass(frozen=True)
class Brightness(Signed, Wire[pb.Brightness]):
    """Every pixel times ``1 + change``, saturating at black and white."""

    kind = "brightness"
    example = -0.3
    change: float = bounded(ge=-1, le=1)


@dataclass(frozen=True)
class Contrast(Signed, Wire[pb.Contrast]):
    """Distance of every pixel from mid-grey times ``1 + change``, saturating."""

    kind = "contrast"
    example = 0.4
    change: float = bounded(ge=-1, le=1)


@dataclass(frozen=True)
class ColorJitter(VisualChange, Wire[pb.ColorJitter]):
    """Random brightness, contrast, saturation and hue; one change for all frames of a draw."""

    kind = "color_jitter"
    example = 0.5
    strength: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class Jpeg(VisualChange, Wire[pb.Jpeg]):
    """Encoded to JPEG and decoded again; ``receipt.image_codec`` names the codec."""

    kind = "jpeg"
    example = 20
    quality: int = bounded(ge=1, le=100)

    @property
    def severity(self) -> float:
        """``100 - quality``."""
        return 100.0 - self.quality


@dataclass(frozen=True)
class Occlusion(VisualChange, Wire[pb.Occlusion]):
    """A mid-grey rectangle at a random place, the same in all frames of a draw."""

    kind = "occlusion"
    example = 0.3
    size: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class RandomShift(VisualChange, Wire[pb.RandomShift]):
    """A random shift by whole pixels, the same in all frames of a draw; borders are repeated."""

    kind = "random_shift"
    example = 4
    pixels: int = bounded(ge=0, le=4095, unit="pixels")


@dataclass(frozen=True)
class DefocusBlur(VisualChange, Wire[pb.DefocusBlur]):
    """Mean over a disk, borders reflected."""

    kind = "defocus_blur"
    example = 2.5
    radius: float = bounded(ge=0, le=32, unit="pixels")


@dataclass(frozen=True)
class MotionBlur(VisualChange, Wire[pb.MotionBlur]):
    """Mean over a line, borders reflected."""

    kind = "motion_blur"
    example = 9
    length: float = bounded(ge=0, le=256, unit="pixels")
    angle: float = bounded(0.0, ge=0, lt=180, unit="degrees")


@dataclass(frozen=True)
class Shadow(VisualChange, Wire[pb.Shadow]):
    """A soft-edged shadow at a random place, in a random direction, the same in all frames."""

    kind = "shadow"
    example = 0.5
    strength: float = bounded(ge=0, le=1)
    softness: float = bounded(0.25, ge=0, le=1)


@dataclass(frozen=True)
class Gamma(VisualChange, Wire[pb.Gamma]):
    """Every pixel to a power: exact at the 256 byte values, linear between them."""

    kind = "gamma"
    example = 1.5
    exponent: float = bounded(ge=0.1, le=10)

    @property
    def severity(self) -> float:
        """``|log2(exponent)|``: a grid of both directions is one grid."""
        return abs(math.log2(self.exponent))


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
