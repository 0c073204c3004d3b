"""The paper's perturbations, plug-ins, and the union of all kinds there are."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from acpc_server.errors import InvalidArgument
from acpc_server.perturb.base import PerturbationSpec
from acpc_server.perturb.camera_specs import (
    Brightness,
    ColorJitter,
    Contrast,
    DefocusBlur,
    Jpeg,
    MotionBlur,
    Occlusion,
    RandomShift,
)
from acpc_server.perturb.registry import Perturbation, lookup


class Identity(PerturbationSpec):
    """The unchanged view."""

    kind: Literal["identity"] = "identity"

    @property
    def severity(self) -> float:
        """Zero."""
        return 0.0


class GaussianNoise(PerturbationSpec):
    """Independent Gaussian noise on every frame, channel and pixel.

    Attributes:
        sigma: Standard deviation in [0, 1] pixel units; the paper uses 0.08.
    """

    kind: Literal["gaussian_noise"] = "gaussian_noise"
    sigma: float = Field(ge=0.0, le=1.0)

    @property
    def severity(self) -> float:
        """``sigma``."""
        return self.sigma


class GaussianBlur(PerturbationSpec):
    """Gaussian blur with sigma = 0.3 * ((k - 1) * 0.5 - 1) + 0.8 and reflected borders.

    Attributes:
        kernel_size: Kernel size k in pixels; an even size becomes the next odd one, so that both
            spellings have one digest. The paper uses 15.
    """

    kind: Literal["gaussian_blur"] = "gaussian_blur"
    kernel_size: int = Field(ge=1, le=4095)

    @field_validator("kernel_size")
    @classmethod
    def _odd(cls, value: int) -> int:
        return value | 1

    @property
    def severity(self) -> float:
        """``kernel_size``; the identity has 1."""
        return float(self.kernel_size)

    @property
    def changes_nothing(self) -> bool:
        """See the base class."""
        return self.kernel_size == 1


class Resize(PerturbationSpec):
    """Bilinear to ``max(1, round(side * scale))`` and back, without antialiasing.

    Attributes:
        scale: Fraction of the side length; the paper uses 0.25.
    """

    kind: Literal["resize"] = "resize"
    scale: float = Field(gt=0.0, le=1.0)

    @property
    def severity(self) -> float:
        """``1 - scale``."""
        return 1.0 - self.scale


class Registered(PerturbationSpec):
    """A perturbation that somebody added to the registry.

    Attributes:
        name: Its name there.
        parameters: Its numbers; the registered parameter model checks them when it is applied.
    """

    kind: Literal["registered"] = "registered"
    name: str = Field(min_length=1, max_length=200)
    parameters: dict[str, float] = Field(default_factory=dict, max_length=64)

    @property
    def severity(self) -> float:
        """The parameter called ``severity``; 0 when there is none."""
        return self.parameters.get("severity", 0.0)

    @property
    def changes_nothing(self) -> bool:
        """False: what a plug-in does is not known here."""
        return False

    def resolve(self) -> tuple[Perturbation, Any]:
        """See the base class."""
        entry = lookup(self.name)
        if issubclass(entry.parameters, PerturbationSpec):
            raise InvalidArgument("name", f"{self.name!r} is built in; send it as that kind")
        try:
            return entry, entry.parameters.model_validate(self.parameters)
        except ValidationError as error:
            raise _first(error).below("parameters") from error


AnyPerturbation = Annotated[
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
    | Registered,
    Field(discriminator="kind"),
]
"""The union of all kinds, for pydantic fields."""

_ADAPTER: TypeAdapter[AnyPerturbation] = TypeAdapter(AnyPerturbation)


def parse_spec(value: Mapping[str, object]) -> AnyPerturbation:
    """Checks a specification given as data.

    Args:
        value: ``kind`` and the parameters of that kind.

    Returns:
        The frozen specification.

    Raises:
        InvalidArgument: Unknown kind or key, or a value out of bounds. Its field is the key; put
            the place of ``value`` in the request before it with ``below``.
    """
    try:
        return _ADAPTER.validate_python(dict(value))
    except ValidationError as error:
        raise _first(error, skip=1) from error


def _first(error: ValidationError, *, skip: int = 0) -> InvalidArgument:
    """The first thing pydantic found wrong; ``skip`` drops the union's tag from the path."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    field = ".".join(path[skip:]) if path else "kind"
    found = first["input"]
    shown = f"; found {found!r}" if isinstance(found, str | int | float) else ""
    return InvalidArgument(field, f"{first['msg']}{shown}")
