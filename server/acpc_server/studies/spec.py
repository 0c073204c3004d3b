"""A study as data: everything that can change a number of its rows."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from acpc_server.encoding import AnchorJobSpec, DrawnViews, Parameters, digest_json
from acpc_server.interactive import CemBudget, Returns
from acpc_server.models import ModelCard
from acpc_server.numerics import Reduction
from acpc_server.perturb import AnyPerturbation, GaussianNoise


def _noise(*sigmas: float) -> tuple[AnyPerturbation, ...]:
    return tuple(GaussianNoise(sigma=sigma) for sigma in sigmas)


class _Study(Parameters):
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

    def views(self) -> DrawnViews:
        """The views, as anchor 0 draws them; the distinct ones are measured."""
        return DrawnViews(self.shifts, self.draws, self.seed, anchor=0)


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


class StudySpec(AnchorJobSpec):
    """One RunStudy job."""

    study: Annotated[AnyStudy, Field(discriminator="kind")]

    def parameters(self) -> dict[str, object]:
        """The study without its views."""
        return self.study.parameters()

    def perturbation_digest(self) -> str:
        """sha256 over shifts, draw count and seed; over the seed where there are no shifts."""
        digests: dict[str, object] = {"seed": self.study.seed}
        if isinstance(self.study, ShiftedStudy):
            digests["specs"] = [spec.digest for spec in self.study.shifts]
            digests["draws"] = self.study.draws
        return digest_json(digests)
