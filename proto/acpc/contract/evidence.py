"""How sure a score is: intervals, the verdict they support, whether the model fits its data."""

from __future__ import annotations

import math

from acpc.contract.enums import Outcome, WireEnum
from acpc.contract.errors import ArgumentError
from acpc.contract.fields import bounded, seed_field
from acpc.contract.messages import Wire
from acpc.contract.record import Record, ends, percent
from acpc.contract.requests import MAX_ANCHORS, Request
from acpc.v1 import scoring_service_pb2 as pb

MAX_RESAMPLES = 100_000
MAX_WEIGHTS = 1_000_000_000
"""Anchors times resamples, some thirty seconds of a processor."""


class Doubt(WireEnum):
    NONE = 0
    IR = 1
    SR = 2
    BOTH = 3
    DRAWS = 4


class Population(WireEnum):
    SERVER_DEFAULT = 0
    DATASET = 1
    TRAJECTORIES = 2

    @property
    def words(self) -> str:
        """What a statement about it is about."""
        return "this dataset" if self is Population.DATASET else "new trajectories like these"


class EvidenceOptions(Request, Wire[pb.EvidenceOptions]):
    confidence: float = bounded(0.95, gt=0.5, lt=1)
    resamples: int = bounded(2000, ge=200, le=MAX_RESAMPLES)
    seed: int = seed_field()
    population: Population = Population.SERVER_DEFAULT

    def check_rules(self) -> None:
        """There are resamples in the tails."""
        least = math.ceil(round(2 / (1 - self.confidence), 6))  # 4,000 at 0.9995, not 4,001
        if self.resamples < least:
            raise ArgumentError(
                "resamples",
                f"found {self.resamples}, wanted at least {least} at confidence "
                f"{self.confidence:g}",
            )


class UntilDecided(Request, Wire[pb.UntilDecided]):
    batch: int = bounded(25, ge=2, le=MAX_ANCHORS)

    def sizes(self, limit: int, confidence: float) -> list[int]:
        """Anchors at each look; at a confidence near 1 fewer looks, whose error resamples show."""
        found, least = [limit], limit * math.sqrt(2 / (MAX_RESAMPLES * (1 - confidence)))
        while (half := math.ceil(found[-1] / 2)) >= max(self.batch, least) and half < found[-1]:
            found.append(half)
        return found[::-1]


class LookStop(WireEnum):
    UNSPECIFIED = 0
    DECIDED = 1
    LIMIT = 2


class Look(Record, Wire[pb.Look], eq=True):
    anchors: int
    eligible: int
    passing: float
    failing: float
    p_passed: float
    p_failed: float


class SequentialLooks(Record, Wire[pb.SequentialLooks], eq=True):
    confidence: float
    limit: int
    batch: int
    stop: LookStop
    looks: tuple[Look, ...]


class Interval(Record, Wire[pb.Interval], eq=True):
    lower: float
    upper: float
    method: str

    def __post_init__(self) -> None:
        """Results as JSON hold no infinity, which reads as NaN."""
        for end, value in (("lower", -math.inf), ("upper", math.inf)):
            if math.isnan(getattr(self, end)):
                object.__setattr__(self, end, value)

    def __str__(self) -> str:
        """Both ends in words, rounded outwards."""
        # The lower end of a wide interval can be astronomically small: 0 says no less, and no more.
        tiny = abs(self.lower) < 1e-4 * abs(self.upper) < math.inf
        lower = 0.0 if tiny else self.lower
        low, high = ends(lower, self.upper, ".3g")
        if math.isinf(self.upper):
            return "unbounded" if math.isinf(self.lower) else f"{low} or more"
        return f"{low} to {high}"


class PopulationEvidence(Record, Wire[pb.PopulationEvidence]):
    population: Population
    ir_raw: Interval
    ir_relative: Interval | None
    sr: Interval
    score: Interval | None
    confident_outcome: Outcome
    doubt: Doubt


class Evidence(Record, Wire[pb.Evidence]):
    confidence: float
    ir_raw: Interval
    reference_ir_raw: Interval | None
    ir_relative: Interval | None
    sr: Interval
    reference_sr: Interval | None
    score: Interval | None
    delta_score: Interval | None
    confident_outcome: Outcome
    doubt: Doubt
    anchors_to_decide: int | None
    trajectories: int
    resamples: int
    seed: int
    p_passed: float
    p_failed: float
    notes: tuple[str, ...] = ()
    looks: SequentialLooks | None = None
    unseen: float | None = None
    population: Population = Population.SERVER_DEFAULT
    windows: int | None = None
    trajectories_to_decide: int | None = None
    other: PopulationEvidence | None = None

    @property
    def of_what(self) -> str:
        """What a "sure" is about, in words."""
        if self.population is Population.DATASET and self.windows:
            return f"the {self.windows:,} windows of this dataset"
        return self.population.words

    @property
    def blind_spot(self) -> str:
        """How rare windows may be that the sample missed, in words; empty where not known."""
        if not self.unseen:
            return ""
        return f"up to {percent(self.unseen)} of them may be of a kind not measured"

    def needed(self, measured: int) -> str:
        """Words how many anchors would probably decide it; empty where that is not known.

        Where trajectories count: how many of these. The guess says little far beyond what was
        measured, where it ends.
        """
        wanted, unit = self.anchors_to_decide, ""
        if self.trajectories_to_decide:
            wanted, unit, measured = self.trajectories_to_decide, " trajectories", self.trajectories
        most = max(1000, 10 * measured)
        if not wanted:
            return ""
        return f"about {wanted}{unit}" if wanted <= most else f"more than {most:,}{unit}"

    @property
    def sure(self) -> float:
        """Confidence of the confident outcome: over all looks, where there were several."""
        return self.confidence if self.looks is None else self.looks.confidence


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
