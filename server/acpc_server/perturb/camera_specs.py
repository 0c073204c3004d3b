"""Specifications of what cameras, lenses, codecs and obstacles do to frames.

Of each, severity 0 leaves the frames as they are, bit for bit.
"""

from typing import Literal

from pydantic import Field

from acpc_server.perturb.base import PerturbationSpec


class Brightness(PerturbationSpec):
    """Every pixel times ``1 + change``.

    Attributes:
        change: Relative change; -1 is black.
    """

    kind: Literal["brightness"] = "brightness"
    change: float = Field(ge=-1.0, le=1.0)

    @property
    def severity(self) -> float:
        """Size of ``change``: a grid of both signs is one grid."""
        return abs(self.change)


class Contrast(PerturbationSpec):
    """The distance of every pixel from mid-grey times ``1 + change``.

    Attributes:
        change: Relative change; -1 is uniform grey.
    """

    kind: Literal["contrast"] = "contrast"
    change: float = Field(ge=-1.0, le=1.0)

    @property
    def severity(self) -> float:
        """Size of ``change``: a grid of both signs is one grid."""
        return abs(self.change)


class ColorJitter(PerturbationSpec):
    """Random brightness, contrast, saturation and hue, the same for all frames of a draw.

    Attributes:
        strength: ``s``: the first three change by up to 0.8 s, hue by up to 0.2 s of a turn.
    """

    kind: Literal["color_jitter"] = "color_jitter"
    strength: float = Field(ge=0.0, le=1.0)

    @property
    def severity(self) -> float:
        """``strength``."""
        return self.strength


class Jpeg(PerturbationSpec):
    """Lossy compression.

    Attributes:
        quality: On libjpeg's scale; 100 stands for no compression at all, although libjpeg's own
            100 still rounds.
    """

    kind: Literal["jpeg"] = "jpeg"
    quality: int = Field(ge=1, le=100)

    @property
    def severity(self) -> float:
        """``100 - quality``."""
        return 100.0 - self.quality


class Occlusion(PerturbationSpec):
    """A mid-grey rectangle at a random place, the same for all frames of a draw.

    Attributes:
        size: Its sides as a fraction of the frame's.
    """

    kind: Literal["occlusion"] = "occlusion"
    size: float = Field(ge=0.0, le=1.0)

    @property
    def severity(self) -> float:
        """``size``."""
        return self.size


class RandomShift(PerturbationSpec):
    """A random shift by whole pixels, the same for all frames of a draw.

    Attributes:
        pixels: Largest shift in pixels of the model's input.
    """

    kind: Literal["random_shift"] = "random_shift"
    pixels: int = Field(ge=0, le=4095)

    @property
    def severity(self) -> float:
        """``pixels``."""
        return float(self.pixels)


class DefocusBlur(PerturbationSpec):
    """The mean over a disk.

    Attributes:
        radius: Of the disk, in pixels of the model's input.
    """

    kind: Literal["defocus_blur"] = "defocus_blur"
    radius: float = Field(ge=0.0, le=32.0)

    @property
    def severity(self) -> float:
        """``radius``."""
        return self.radius


class MotionBlur(PerturbationSpec):
    """The mean over a line.

    Attributes:
        length: Of the line, in pixels of the model's input.
        angle: Its direction in degrees, counterclockwise from horizontal.
    """

    kind: Literal["motion_blur"] = "motion_blur"
    length: float = Field(ge=0.0, le=256.0)
    angle: float = Field(default=0.0, ge=0.0, lt=180.0)

    @property
    def severity(self) -> float:
        """``length``."""
        return self.length
