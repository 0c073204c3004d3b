"""What every specification of a visual perturbation has in common."""

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict

from acpc_server.perturb.registry import Perturbation, lookup


class PerturbationSpec(BaseModel):
    """Base of every specification; the field ``kind`` tells them apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: str

    @property
    def severity(self) -> float:
        """Strength of the perturbation in its kind's own unit; larger is stronger."""
        raise NotImplementedError

    @property
    def changes_nothing(self) -> bool:
        """Whether the view is the frames themselves, bit for bit, for certain."""
        return self.severity == 0.0

    @property
    def stochastic(self) -> bool:
        """Whether draws differ; if not, one draw stands for all of them.

        The paper averages five draws of noise, and applies blur and resize once.

        Raises:
            InvalidArgument: As ``resolve``.
            FailedPrecondition: As ``resolve``.
        """
        return self.resolve()[0].stochastic

    @property
    def canonical_json(self) -> str:
        """The one JSON text of this specification: sorted keys, no spaces, defaults included."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """Sha256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.canonical_json.encode()).hexdigest()

    def resolve(self) -> tuple[Perturbation, Any]:
        """The registered perturbation this means, and its checked parameters.

        Raises:
            InvalidArgument: No such registered perturbation, or parameters its model refuses.
            FailedPrecondition: An installed plug-in that cannot be loaded.
        """
        return lookup(self.kind), self
