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
    """Independent noise on every pixel, channel and frame; severity ``sigma``.

    Attributes:
        sigma: Standard deviation in [0, 1] pixel units, in [0, 1]; the paper uses 0.08.
    """

    kind = "gaussian_noise"
    example = 0.08
    sigma: float = bounded(ge=0, le=1, unit="pixel units")


@dataclass(frozen=True)
class GaussianBlur(VisualChange, Wire[pb.GaussianBlur]):
    """Gaussian blur, sigma 0.3 ((k - 1) 0.5 - 1) + 0.8; an even k becomes the next odd one.

    Attributes:
        kernel_size: Kernel size k in pixels, 1 to 4095, also the severity; borders are reflected.
            An even size is stored as the odd one that is applied, so that both spellings have one
            digest and one label. The paper uses 15.
    """

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
    """Bilinear to ``max(1, round(side * scale))`` and back, without antialiasing.

    Attributes:
        scale: Fraction of the side length, in (0, 1]; the paper uses 0.25.
    """

    kind = "resize"
    example = 0.25
    scale: float = bounded(gt=0, le=1)

    @property
    def severity(self) -> float:
        """``1 - scale``."""
        return 1.0 - self.scale


@dataclass(frozen=True)
class Brightness(Signed, Wire[pb.Brightness]):
    """Every pixel times ``1 + change``, saturating at black and white.

    Attributes:
        change: Relative change in [-1, 1]; -1 is black.
    """

    kind = "brightness"
    example = -0.3
    change: float = bounded(ge=-1, le=1)


@dataclass(frozen=True)
class Contrast(Signed, Wire[pb.Contrast]):
    """Distance of every pixel from mid-grey times ``1 + change``, saturating.

    Attributes:
        change: Relative change in [-1, 1]; -1 is uniform grey.
    """

    kind = "contrast"
    example = 0.4
    change: float = bounded(ge=-1, le=1)


@dataclass(frozen=True)
class ColorJitter(VisualChange, Wire[pb.ColorJitter]):
    """Random brightness, contrast, saturation and hue; one change for all frames of a draw.

    Attributes:
        strength: s in [0, 1]: the first three change by up to 0.8 s, hue by up to 0.2 s of a turn.
    """

    kind = "color_jitter"
    example = 0.5
    strength: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class Jpeg(VisualChange, Wire[pb.Jpeg]):
    """Encoded to JPEG and decoded again; ``receipt.image_codec`` names the codec.

    Attributes:
        quality: 1 to 100 on libjpeg's scale; 100 leaves the frames as they are, although libjpeg's
            own 100 still rounds.
    """

    kind = "jpeg"
    example = 20
    quality: int = bounded(ge=1, le=100)

    @property
    def severity(self) -> float:
        """``100 - quality``."""
        return 100.0 - self.quality


@dataclass(frozen=True)
class Occlusion(VisualChange, Wire[pb.Occlusion]):
    """A mid-grey rectangle at a random place, the same in all frames of a draw.

    Attributes:
        size: Its sides as a fraction of the frame's, in [0, 1].
    """

    kind = "occlusion"
    example = 0.3
    size: float = bounded(ge=0, le=1)


@dataclass(frozen=True)
class RandomShift(VisualChange, Wire[pb.RandomShift]):
    """A random shift by whole pixels, the same in all frames of a draw; borders are repeated.

    Attributes:
        pixels: Largest shift in each direction in pixels of the model's input, 0 to 4095.
    """

    kind = "random_shift"
    example = 4
    pixels: int = bounded(ge=0, le=4095, unit="pixels")


@dataclass(frozen=True)
class DefocusBlur(VisualChange, Wire[pb.DefocusBlur]):
    """Mean over a disk, borders reflected.

    Attributes:
        radius: Of the disk in pixels of the model's input, in [0, 32].
    """

    kind = "defocus_blur"
    example = 2.5
    radius: float = bounded(ge=0, le=32, unit="pixels")


@dataclass(frozen=True)
class MotionBlur(VisualChange, Wire[pb.MotionBlur]):
    """Mean over a line, borders reflected.

    Attributes:
        length: Of the line in pixels of the model's input, in [0, 256].
        angle: Its direction in degrees, counterclockwise from horizontal, in [0, 180).
    """

    kind = "motion_blur"
    example = 9
    length: float = bounded(ge=0, le=256, unit="pixels")
    angle: float = bounded(0.0, ge=0, lt=180, unit="degrees")


@dataclass(frozen=True)
class Shadow(VisualChange, Wire[pb.Shadow]):
    """A soft-edged shadow at a random place, in a random direction; one for all frames of a draw.

    Attributes:
        strength: How dark it is, in [0, 1]; 1 is black.
        softness: Width of its edge as a fraction of the frame's shorter side, in [0, 1]; at least
            one pixel.
    """

    kind = "shadow"
    example = 0.5
    strength: float = bounded(ge=0, le=1)
    softness: float = bounded(0.25, ge=0, le=1)


@dataclass(frozen=True)
class Gamma(VisualChange, Wire[pb.Gamma]):
    """Every pixel to a power: exact at the 256 byte values, linear between them.

    Attributes:
        exponent: Above 1 is darker, below 1 brighter, in [0.1, 10].
    """

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
