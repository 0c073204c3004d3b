"""The visual changes a request can name. The server applies them; only the spec travels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from acpc.v1 import perturbation_pb2 as pb

from acpc_client.errors import ArgumentError


@dataclass(frozen=True)
class Identity:
    """The unchanged view. Every distance it yields is zero."""

    def to_message(self) -> pb.PerturbationSpec:
        """The spec on the wire."""
        return pb.PerturbationSpec(identity=pb.Identity())

    def __str__(self) -> str:
        return "identity"


@dataclass(frozen=True)
class GaussianNoise:
    """Independent noise on every pixel, channel and frame.

    Attributes:
        sigma: Standard deviation in [0, 1] pixel units; the paper uses 0.08.
    """

    sigma: float

    def to_message(self) -> pb.PerturbationSpec:
        """The spec on the wire."""
        return pb.PerturbationSpec(gaussian_noise=pb.GaussianNoise(sigma=self.sigma))

    def __str__(self) -> str:
        return f"gaussian_noise:{self.sigma:g}"


@dataclass(frozen=True)
class GaussianBlur:
    """Gaussian blur with reflected borders.

    Attributes:
        kernel_size: Kernel size in pixels; the paper uses 15.
    """

    kernel_size: int

    def __post_init__(self) -> None:
        if not 0 <= self.kernel_size < 2**32:
            raise ArgumentError("kernel_size", f"found {self.kernel_size}, wanted a size in pixels")

    def to_message(self) -> pb.PerturbationSpec:
        """The spec on the wire."""
        return pb.PerturbationSpec(gaussian_blur=pb.GaussianBlur(kernel_size=self.kernel_size))

    def __str__(self) -> str:
        return f"blur:{self.kernel_size}"


@dataclass(frozen=True)
class Resize:
    """Bilinear down to ``round(side * scale)`` and back up, without antialiasing.

    Attributes:
        scale: Fraction of the side length in (0, 1]; the paper uses 0.25.
    """

    scale: float

    def to_message(self) -> pb.PerturbationSpec:
        """The spec on the wire."""
        return pb.PerturbationSpec(resize=pb.Resize(scale=self.scale))

    def __str__(self) -> str:
        return f"resize:{self.scale:g}"


@dataclass(frozen=True)
class Registered:
    """A perturbation that the server's operator has registered under a name."""

    name: str
    parameters: Mapping[str, float] = field(default_factory=dict)

    def to_message(self) -> pb.PerturbationSpec:
        """The spec on the wire."""
        spec = pb.RegisteredPerturbation(name=self.name, parameters=dict(self.parameters))
        return pb.PerturbationSpec(registered=spec)

    def __str__(self) -> str:
        listed = ",".join(f"{key}={value:g}" for key, value in sorted(self.parameters.items()))
        return f"{self.name}:{listed}" if listed else self.name


Perturbation = Identity | GaussianNoise | GaussianBlur | Resize | Registered

CHOICES = ("gaussian_noise:SIGMA", "blur:KERNEL", "resize:SCALE", "identity")


def parse(text: str) -> Perturbation:
    """Reads the short form, for example ``gaussian_noise:0.08``, ``blur:15`` or ``resize:0.25``.

    Raises:
        ArgumentError: The text is none of ``CHOICES``.
    """
    kind, _, value = text.partition(":")
    try:
        match kind:
            case "gaussian_noise":
                return GaussianNoise(float(value))
            case "blur":
                return GaussianBlur(int(value))
            case "resize":
                return Resize(float(value))
            case "identity" if not value:
                return Identity()
    except ValueError as error:
        raise ArgumentError("perturbation", _wanted(text)) from error
    raise ArgumentError("perturbation", _wanted(text))


def _wanted(text: str) -> str:
    return f"found {text!r}, wanted one of {', '.join(CHOICES)}; for example gaussian_noise:0.08"
