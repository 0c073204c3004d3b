"""A study as data: everything that can change a number of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acpc.contract import (
    AnchorSample,
    AnchorSource,
    DriftStudy,
    GeometryStudy,
    PerturbationSet,
    PlannerStudy,
    Reading,
    SensitivityStudy,
    Study,
    digested,
    resolved,
    to_plain,
)

from acpc_server.encoding import AnchorJobSpec, digest_json
from acpc_server.errors import below
from acpc_server.perturb import DRAW_FORMAT

# What of a study the digest of its views holds.
DRAWN = ("shifts", "draws", "seed")


def views_of(study: DriftStudy | PlannerStudy | GeometryStudy) -> PerturbationSet:
    """The views, as anchor 0 draws them; the distinct ones are measured."""
    return PerturbationSet(study.shifts, study.draws, study.seed)


def goal_offset(study: PlannerStudy) -> int:
    """Kept frames from the newest frame of the history to the goal."""
    return study.goal_offset or study.budget.horizon


def _without_views(study: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in study.items() if name not in DRAWN}


@dataclass(frozen=True, kw_only=True)
class StudySpec(AnchorJobSpec):
    """One RunStudy job."""

    study: Study

    def __post_init__(self) -> None:
        """Decides what the request left to the reading."""
        reading, study = Reading.PAPER, self.study
        if isinstance(study, DriftStudy | PlannerStudy):
            study = resolved(study)
            object.__setattr__(self, "study", study)
            reading = study.reading
        if isinstance(self.anchors, AnchorSource):
            frames = goal_offset(study) if isinstance(study, PlannerStudy) else study.horizon
            released = reading is Reading.RELEASED
            sample = AnchorSample.EPISODES if released else AnchorSample.WINDOWS
            with below("dataset"):
                drawn = self.anchors.with_windows(reading, frames, sample)
            object.__setattr__(self, "anchors", drawn)

    def parameters(self) -> dict[str, object]:
        """The study without its views, and how the windows are drawn."""
        return {**_without_views(to_plain(self.study)), **self.drawn()}

    def digested(self) -> dict[str, object]:
        """The same without what the first release had no choice in, where it is the paper's.

        The windows are in the digest of the anchors.
        """
        return _without_views(digested(self.study))

    def perturbation_digest(self) -> str:
        """sha256 over shifts, draw count and seed; over the seed where there are no shifts."""
        digests: dict[str, object] = {"seed": self.study.seed}
        if not isinstance(self.study, SensitivityStudy):
            digests["draw_format"] = DRAW_FORMAT
            digests["specs"] = [spec.digest for spec in self.study.shifts]
            digests["draws"] = self.study.draws
        return digest_json(digests | self.given())

    def given(self) -> dict[str, object]:
        """The groups of directions, or of views, and their digests, as JSON."""
        if isinstance(self.study, SensitivityStudy) and self.view_digests:
            return {"given_directions": dict(self.view_digests)}
        return super().given()
