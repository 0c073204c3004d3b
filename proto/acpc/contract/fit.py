"""Whether a model predicts the data that it is measured on."""

from __future__ import annotations

from acpc.contract.enums import WireEnum
from acpc.contract.evidence import Interval
from acpc.contract.messages import Wire
from acpc.contract.record import Record
from acpc.v1 import scoring_service_pb2 as pb

CAUSES = {
    "later_actions": "actions one row later",
    "earlier_actions": "actions one row earlier",
    "negated_actions": "actions of the other sign",
    "zscore_actions": "actions with the normaliser zscore",
    "percentile_actions": "actions with the normaliser percentile",
    "none_actions": "actions as recorded (normaliser none)",
    "bgr": "frames with red and blue swapped",
    "upside_down": "frames upside down",
    "mirrored": "frames mirrored",
}
"""Usual causes of a misfit: what undoes each, in words."""
_NOT_TRIED = (
    "actions of other rows or of another file, another frameskip or task, a model that predicts "
    "nothing"
)


class FitOutcome(WireEnum):
    UNSPECIFIED = 0
    FITS = 1
    DOES_NOT_FIT = 2
    UNDECIDED = 3


class FitCause(Record, Wire[pb.FitCause]):
    name: str
    skill: float
    instead_of: float
    sure: bool
    anchors: int

    def __str__(self) -> str:
        """What would fit, and how well."""
        words = CAUSES.get(self.name, self.name)
        return f"{words} would: error {self.skill:.2f} instead of {self.instead_of:.2f}"


class Fit(Record, Wire[pb.Fit]):
    outcome: FitOutcome
    skill: float
    interval: Interval
    step_skill: tuple[float, ...]
    step_intervals: tuple[Interval, ...]
    foreign: float | None
    foreign_interval: Interval | None
    causes: tuple[FitCause, ...]
    tried: tuple[str, ...]
    anchors: int

    def __str__(self) -> str:
        """The outcome in words: the numbers, and what would fit, the likeliest first."""
        error = f"its error is {self.skill:.2f} of standing still's ({self.interval})"
        used = ""
        if self.foreign is not None:
            used = f", {self.foreign:.2f} of its error with another anchor's actions"
        match self.outcome:
            case FitOutcome.FITS:
                return f"predicts these data: {error}{used}"
            case FitOutcome.UNDECIDED:
                would = "".join(f"; perhaps {one}" for one in self.causes[:1])
                return f"undecided whether it predicts these data: {error}{used}{would}"
        likely = [one for one in self.causes if one.sure] or self.causes
        would = "; ".join(map(str, likely[:3]))
        left = f"none of {len(self.tried)} usual causes explains it; left are {_NOT_TRIED}"
        return f"does not fit these data: {would or left}; {error}{used}"
