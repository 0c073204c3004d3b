"""A study as data: everything that can change a number of its rows."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from acpc_server.encoding import AnySource, PerturbationPlan, digest_json
from acpc_server.engine import NumericMode
from acpc_server.interactive import CemBudget, Returns
from acpc_server.jobs import JobPlan
from acpc_server.models import ModelCard
from acpc_server.numerics import Reduction
from acpc_server.perturb import AnyPerturbation, GaussianNoise

# Anchors in one durable shard. Part of the plan's meaning: batches follow shards, and float32
# matrix products depend on the batch in their last bits.
SHARD_ANCHORS = 10


def _noise(*sigmas: float) -> tuple[AnyPerturbation, ...]:
    return tuple(GaussianNoise(sigma=sigma) for sigma in sigmas)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Study(_Model):
    """What every study has; see the messages of study_service.proto."""

    seed: int = 0

    def window(self, card: ModelCard) -> tuple[int, int]:
        """Frames of history, and future frames, that an anchor must have."""
        raise NotImplementedError

    def result_bytes(self, card: ModelCard) -> int:
        """What an anchor adds to the result, about."""
        raise NotImplementedError

    def parameters(self) -> dict[str, object]:
        """Everything but the views, for the receipt."""
        return self.model_dump(mode="json", exclude={"shifts", "draws", "seed"})


class _Rolled(_Study):
    """A study that rolls logged histories forward under their recorded actions."""

    horizon: int = 8

    def window(self, card: ModelCard) -> tuple[int, int]:
        """The checkpoint's whole history, and the future it predicts."""
        return card.history, self.horizon


class ShiftedStudy(_Study):
    """A study of perturbed views."""

    shifts: tuple[AnyPerturbation, ...]
    draws: int

    def views(self) -> PerturbationPlan:
        """The views, as anchor 0 draws them; the distinct ones are measured."""
        return PerturbationPlan(self.shifts, self.draws, self.seed, anchor=0)


class DriftStudy(_Rolled, ShiftedStudy):
    """ACPC and prediction-error change; Sec. "ACPC and Prediction-Error Change" in the paper."""

    kind: Literal["drift"] = "drift"
    shifts: tuple[AnyPerturbation, ...] = _noise(0.02, 0.05, 0.08)
    draws: int = 2
    groups: int = 16

    def result_bytes(self, card: ModelCard) -> int:
        """14 columns a view, and the unchanged view."""
        return 8 * (14 * len(self.views().distinct()) + 1)


class PlannerStudy(ShiftedStudy):
    """ACPC and the cost of plan changes; App. "Adaptive-CEM Selection-Regret Protocol"."""

    kind: Literal["planner"] = "planner"
    shifts: tuple[AnyPerturbation, ...] = _noise(0.02, 0.05, 0.08)
    draws: int = 1
    budget: CemBudget = CemBudget()
    sampling_seed: int = 0
    reduction: Reduction = "mean"
    returns: Returns = "mean"
    history: int = 1
    goal_offset: int = 5

    def window(self, card: ModelCard) -> tuple[int, int]:
        """The newest frames, and the future up to the goal."""
        return self.history, self.goal_offset

    def result_bytes(self, card: ModelCard) -> int:
        """10 columns and 3 numbers a pool for each view."""
        return 8 * (10 + 3 * self.budget.iterations) * len(self.views().distinct())


class GeometryStudy(_Rolled, ShiftedStudy):
    """Local geometry of perturbed views; App. "Local-Geometry Case-Study Definitions"."""

    kind: Literal["geometry"] = "geometry"
    shifts: tuple[AnyPerturbation, ...] = _noise(0.01, 0.04, 0.08)
    draws: int = 6

    def result_bytes(self, card: ModelCard) -> int:
        """7 columns, and every representation in both spaces."""
        return 8 * 7 + 2 * 4 * card.latent_dim * (1 + len(self.views().distinct()))


class SensitivityStudy(_Rolled):
    """Local sensitivity; App. "Local Sensitivity under Gaussian Noise"."""

    kind: Literal["sensitivity"] = "sensitivity"
    probes: int = 8
    step: float = 0.001

    def result_bytes(self, card: ModelCard) -> int:
        """4 columns a probe and method."""
        return 8 * 4 * 2 * self.probes


AnyStudy: TypeAlias = DriftStudy | PlannerStudy | GeometryStudy | SensitivityStudy


class StudyPlan(JobPlan):
    """One RunStudy job."""

    anchors: AnySource
    study: Annotated[AnyStudy, Field(discriminator="kind")]
    numeric_mode: NumericMode = NumericMode.FP32

    def shards(self) -> list[tuple[int, int]]:
        """Anchor ranges [start, stop) of the shards, in order."""
        edges = [*range(0, self.anchors.count, SHARD_ANCHORS), self.anchors.count]
        return list(itertools.pairwise(edges))

    def parameters_digest(self) -> str:
        """sha256 over the study without its views, and the shard size."""
        return digest_json({**self.study.parameters(), "shard_anchors": SHARD_ANCHORS})

    def perturbation_digest(self) -> str:
        """sha256 over shifts, draw count and seed; over the seed where there are no shifts."""
        digests: dict[str, object] = {"seed": self.study.seed}
        if isinstance(self.study, ShiftedStudy):
            digests["specs"] = [spec.digest for spec in self.study.shifts]
            digests["draws"] = self.study.draws
        return digest_json(digests)
