"""A checkpoint job as data: everything that can change a number of its result."""

from __future__ import annotations

import itertools
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from acpc_server.encoding import AnySource, digest_json
from acpc_server.engine import NumericMode
from acpc_server.jobs import CheckpointName, JobPlan
from acpc_server.perturb import AnyPerturbation

# Anchors in one durable shard. Part of the plan's meaning: batches follow shards, and float32
# matrix products depend on the batch in their last bits.
SHARD_ANCHORS = 10

Role = Literal["checkpoint", "reference"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Protocol(_Model):
    """The measurement; defaults are the paper's (Appendix C)."""

    draws: int = 5
    seed: int = 0
    horizon: int = 8
    quantile: float = 0.90
    margin: float = 0.10
    weights: tuple[float, ...] = ()
    extra_horizons: tuple[int, ...] = ()
    extra_quantiles: tuple[float, ...] = ()


class ScreenThresholds(_Model):
    """Thresholds of the screen; defaults are the choice of 13 of the paper's 14 splits."""

    ir: float = 0.30
    sr: float = 0.95


class ScorePlan(JobPlan):
    """One ScoreCheckpoint job."""

    reference: CheckpointName | None
    anchors: AnySource
    perturbation: AnyPerturbation
    protocol: Protocol = Field(default_factory=Protocol)
    thresholds: ScreenThresholds = Field(default_factory=ScreenThresholds)
    numeric_mode: NumericMode = NumericMode.FP32

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

    def shards(self) -> list[tuple[int, int]]:
        """Anchor ranges [start, stop) of the shards, in order."""
        edges = [*range(0, self.anchors.count, SHARD_ANCHORS), self.anchors.count]
        return list(itertools.pairwise(edges))

    def parameters_digest(self) -> str:
        """sha256 over the protocol, the thresholds and the shard size."""
        return digest_json(
            {
                "protocol": self.protocol.model_dump(),
                "thresholds": self.thresholds.model_dump(),
                "shard_anchors": SHARD_ANCHORS,
            }
        )

    def perturbation_digest(self) -> str:
        """sha256 over the shift, the draw count and the seed."""
        return digest_json(
            {
                "specs": [self.perturbation.digest],
                "draws": self.protocol.draws,
                "seed": self.protocol.seed,
            }
        )
