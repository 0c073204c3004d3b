"""A checkpoint job as data: everything that can change a number of its result."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from acpc_server.encoding import AnchorJobSpec, Parameters, digest_json
from acpc_server.engine import CheckpointName
from acpc_server.perturb import AnyPerturbation

Role = Literal["checkpoint", "reference"]


class ScoreProtocol(Parameters):
    """The measurement; defaults are the paper's (Appendix C)."""

    draws: int = 5
    seed: int = 0
    horizon: int = 8
    quantile: float = 0.90
    margin: float = 0.10
    weights: tuple[float, ...] = ()
    extra_horizons: tuple[int, ...] = ()
    extra_quantiles: tuple[float, ...] = ()


class ScreenThresholds(Parameters):
    """Thresholds of the screen; defaults are the choice of 13 of the paper's 14 splits."""

    ir: float = 0.30
    sr: float = 0.95


class ScoreSpec(AnchorJobSpec):
    """One ScoreCheckpoint job."""

    reference: CheckpointName | None
    perturbation: AnyPerturbation
    protocol: ScoreProtocol = Field(default_factory=ScoreProtocol)
    thresholds: ScreenThresholds = Field(default_factory=ScreenThresholds)

    def roles(self) -> list[Role]:
        """The checkpoints to measure; a reference equal to the checkpoint is measured once."""
        if self.reference is None or self.reference.digest == self.checkpoint.digest:
            return ["checkpoint"]
        return ["checkpoint", "reference"]

    def named(self, role: Role) -> CheckpointName:
        """The checkpoint that plays ``role``."""
        if role == "reference" and self.reference is not None:
            return self.reference
        return self.checkpoint

    def horizons(self) -> list[int]:
        """Horizons at which raw IR is reported, each once; the main one last unless asked for."""
        return list(dict.fromkeys((*self.protocol.extra_horizons, self.protocol.horizon)))

    def reference_digest(self) -> str:
        """Digest of the reference checkpoint; empty without one."""
        return self.reference.digest if self.reference else ""

    def parameters(self) -> dict[str, object]:
        """The protocol and the thresholds."""
        return self.model_dump(include={"protocol", "thresholds"})

    def perturbation_digest(self) -> str:
        """sha256 over the shift, the draw count and the seed."""
        return digest_json(
            {
                "specs": [self.perturbation.digest],
                "draws": self.protocol.draws,
                "seed": self.protocol.seed,
            }
        )
