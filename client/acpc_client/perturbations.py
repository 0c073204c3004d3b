"""The visual changes a request can name. The server applies them; only the spec travels.

docs/perturbations.md defines each. Of the built-in ones, severity is larger for a stronger change;
a grid of severities of one kind shares its random numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

from acpc.v1 import perturbation_pb2 as pb

from acpc_client.errors import ArgumentError


class VisualChange(ABC):
    """Base of every visual change.

    Attributes:
        kind: Field name of the kind in the contract, for example ``"gaussian_noise"``.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def severity(self) -> float:
        """Strength in the kind's own unit, as in ``certified_severities``."""

    def to_message(self) -> pb.PerturbationSpec:
        """The spec on the wire."""
        parameters = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return pb.PerturbationSpec(**{self.kind: parameters})  # type: ignore[arg-type]

    def __str__(self) -> str:
        """The short form; ``acpc_client.severities.parse`` reads it."""
        first, *_ = fields(self)  # type: ignore[arg-type]
        return f"{self.kind}:{_shown(getattr(self, first.name))}"


@dataclass(frozen=True)
class Identity(VisualChange):
    """The unchanged view. Every distance it yields is zero."""

    kind = "identity"

    @property
    def severity(self) -> float:
        """Zero."""
        return 0.0

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class GaussianNoise(VisualChange):
    """Independent noise on every pixel, channel and frame.

    Attributes:
        sigma: Standard deviation in [0, 1] pixel units; the paper uses 0.08.
    """

    kind = "gaussian_noise"
    sigma: float

    @property
    def severity(self) -> float:
        """``sigma``."""
        return self.sigma


@dataclass(frozen=True)
class GaussianBlur(VisualChange):
    """Gaussian blur with reflected borders.

    Attributes:
        kernel_size: Kernel size in pixels; the paper uses 15.
    """

    kind = "gaussian_blur"
    kernel_size: int

    def __post_init__(self) -> None:
        _check_whole("kernel_size", self.kernel_size)

    @property
    def severity(self) -> float:
        """``kernel_size``, made odd as the server does."""
        return float(self.kernel_size | 1)


@dataclass(frozen=True)
class Resize(VisualChange):
    """Bilinear down to ``round(side * scale)`` and back up, without antialiasing.

    Attributes:
        scale: Fraction of the side length in (0, 1]; the paper uses 0.25.
    """

    kind = "resize"
    scale: float

    @property
    def severity(self) -> float:
        """``1 - scale``."""
        return 1.0 - self.scale


@dataclass(frozen=True)
class Brightness(VisualChange):
    """Every pixel times ``1 + change``, saturating at black and white.

    Attributes:
        change: Relative change in [-1, 1].
    """

    kind = "brightness"
    change: float

    @property
    def severity(self) -> float:
        """Size of ``change``."""
        return abs(self.change)


@dataclass(frozen=True)
class Contrast(VisualChange):
    """Distance of every pixel from mid-grey times ``1 + change``, saturating.

    Attributes:
        change: Relative change in [-1, 1].
    """

    kind = "contrast"
    change: float

    @property
    def severity(self) -> float:
        """Size of ``change``."""
        return abs(self.change)


@dataclass(frozen=True)
class ColorJitter(VisualChange):
    """Random brightness, contrast, saturation and hue; one change for all frames of a draw.

    Attributes:
        strength: In [0, 1]; 1 changes the first three by up to 0.8 and hue by up to 0.2 turns.
    """

    kind = "color_jitter"
    strength: float

    @property
    def severity(self) -> float:
        """``strength``."""
        return self.strength


@dataclass(frozen=True)
class Jpeg(VisualChange):
    """Encoded to JPEG and decoded again; ``receipt.image_codec`` names the codec.

    Attributes:
        quality: 1 to 100 on libjpeg's scale; 100 leaves the frames as they are.
    """

    kind = "jpeg"
    quality: int

    def __post_init__(self) -> None:
        _check_whole("quality", self.quality)

    @property
    def severity(self) -> float:
        """``100 - quality``."""
        return 100.0 - self.quality


@dataclass(frozen=True)
class Occlusion(VisualChange):
    """A mid-grey rectangle at a random place, the same in all frames of a draw.

    Attributes:
        size: Its sides as a fraction of the frame's, in [0, 1].
    """

    kind = "occlusion"
    size: float

    @property
    def severity(self) -> float:
        """``size``."""
        return self.size


@dataclass(frozen=True)
class RandomShift(VisualChange):
    """A random shift by whole pixels, the same in all frames of a draw; borders are repeated.

    Attributes:
        pixels: Largest shift in pixels of the model's input.
    """

    kind = "random_shift"
    pixels: int

    def __post_init__(self) -> None:
        _check_whole("pixels", self.pixels)

    @property
    def severity(self) -> float:
        """``pixels``."""
        return float(self.pixels)


@dataclass(frozen=True)
class DefocusBlur(VisualChange):
    """Mean over a disk, borders reflected.

    Attributes:
        radius: Of the disk in pixels of the model's input, in [0, 32].
    """

    kind = "defocus_blur"
    radius: float

    @property
    def severity(self) -> float:
        """``radius``."""
        return self.radius


@dataclass(frozen=True)
class MotionBlur(VisualChange):
    """Mean over a line, borders reflected.

    Attributes:
        length: Of the line in pixels of the model's input, in [0, 256].
        angle: Its direction in degrees, counterclockwise from horizontal, in [0, 180).
    """

    kind = "motion_blur"
    length: float
    angle: float = 0.0

    @property
    def severity(self) -> float:
        """``length``."""
        return self.length

    def __str__(self) -> str:
        return f"{super().__str__()}@{_shown(self.angle)}" if self.angle else super().__str__()


@dataclass(frozen=True)
class Registered(VisualChange):
    """A perturbation that the server's operator has registered under a name."""

    kind = "registered"
    name: str
    parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def severity(self) -> float:
        """The parameter called ``severity``; 0 when there is none."""
        return self.parameters.get("severity", 0.0)

    def __str__(self) -> str:
        listed = ",".join(f"{key}={value:g}" for key, value in sorted(self.parameters.items()))
        return f"{self.name}:{listed}" if listed else self.name


Perturbation = (
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
    | Registered
)


def _check_whole(name: str, value: int) -> None:
    if not (hasattr(value, "__index__") and 0 <= value < 2**32):
        raise ArgumentError(name, f"found {value}, wanted a whole number from 0 to 4294967295")


def _shown(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
