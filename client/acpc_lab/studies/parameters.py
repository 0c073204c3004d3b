"""What decides a summary beside its rows: frozen values that travel as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, get_origin, get_type_hints

from acpc_client.errors import ArgumentError


@dataclass(frozen=True)
class Parameters:
    """Base of the parameters of a study; each default is the paper's."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads ``to_dict`` after a journey through JSON.

        Raises:
            ArgumentError: A parameter is unknown or out of range.
        """
        hints = get_type_hints(cls)
        for name in values:
            if name not in hints:
                raise ArgumentError(name, f"is no parameter; there are {', '.join(hints)}")
        return cls(
            **{
                name: tuple(value) if get_origin(hints[name]) is tuple else value
                for name, value in values.items()
            }
        )

    def require(self, name: str, fits: bool, wanted: str) -> None:
        """Refuses a parameter that does not fit.

        Raises:
            ArgumentError: With the value found and the value wanted.
        """
        if not fits:
            raise ArgumentError(name, f"found {getattr(self, name)!r}, wanted {wanted}")
