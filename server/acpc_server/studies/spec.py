"""A study as data: everything that can change a number of its rows."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract import (
    DriftStudy,
    GeometryStudy,
    PerturbationSet,
    PlannerStudy,
    SensitivityStudy,
    Study,
    StudyRequest,
    to_plain,
)

from acpc_server.encoding import AnchorJobSpec, digest_json, distinct_views
from acpc_server.models import ModelCard

# What of a study the digest of its views holds.
DRAWN = ("shifts", "draws", "seed")


def views_of(study: DriftStudy | PlannerStudy | GeometryStudy) -> PerturbationSet:
    """The views, as anchor 0 draws them; the distinct ones are measured."""
    return PerturbationSet(study.shifts, study.draws, study.seed)


def goal_offset(study: PlannerStudy) -> int:
    """Kept frames from the newest frame of the history to the goal."""
    return study.goal_offset or study.budget.horizon


def window(study: Study, card: ModelCard) -> tuple[int, int]:
    """Frames of history, and future frames, that an anchor must have."""
    if isinstance(study, PlannerStudy):
        return study.history, goal_offset(study)
    return card.history, study.horizon


def result_bytes(study: Study, card: ModelCard) -> int:
    """What an anchor adds to the result, about: its columns, arrays and representations."""
    if isinstance(study, SensitivityStudy):
        return 8 * 4 * 2 * study.probes
    views = len(distinct_views(views_of(study)))
    match study:
        case DriftStudy():
            return 8 * (14 * views + 1)
        case PlannerStudy():
            return 8 * (10 + 3 * study.budget.iterations) * views
        case GeometryStudy():
            return 8 * 7 + 2 * 4 * card.latent_dim * (1 + views)


@dataclass(frozen=True, kw_only=True)
class StudySpec(AnchorJobSpec):
    """One RunStudy job."""

    study: Study

    def request(self) -> StudyRequest:
        """The request of this job: defaults filled in, digests pinned, no request id."""
        return StudyRequest(**self.asked(), study=self.study)

    def parameters(self) -> dict[str, object]:
        """The study without its views."""
        return {name: value for name, value in to_plain(self.study).items() if name not in DRAWN}

    def perturbation_digest(self) -> str:
        """sha256 over shifts, draw count and seed; over the seed where there are no shifts."""
        digests: dict[str, object] = {"seed": self.study.seed}
        if not isinstance(self.study, SensitivityStudy):
            digests["specs"] = [spec.digest for spec in self.study.shifts]
            digests["draws"] = self.study.draws
        return digest_json(digests)
