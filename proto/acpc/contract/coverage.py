"""What a planner minimises, and statements about all draws of a perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from acpc.contract.enums import Norm, WireEnum
from acpc.contract.errors import ArgumentError
from acpc.contract.fields import bounded, sized
from acpc.contract.messages import Wire
from acpc.contract.record import Record
from acpc.contract.requests import MAX_HORIZON, MAX_VIEWS, Request
from acpc.v1 import diagnostic_service_pb2 as pb

MAX_POOLS = 10_000


class CoverageOutcome(WireEnum):
    """Result of a test over draws: the statement is shown, refuted, or neither."""

    UNSPECIFIED = 0
    HOLDS = 1
    FAILS = 2
    UNDECIDED = 3


class CoverageStop(WireEnum):
    """Why drawing ended.

    EXACT: the perturbation is not random, so one view stands for all. OUT_OF_REACH: the draws
    allowed would not suffice even if no further one changed the choice. BUSY: the server had no
    room for more. SPENT: the session has had the pools that share the error.
    """

    UNSPECIFIED = 0
    DECIDED = 1
    EXACT = 2
    MAX_DRAWS = 3
    OUT_OF_REACH = 4
    DEADLINE = 5
    BUSY = 6
    SPENT = 7


@dataclass(frozen=True)
class CoverageGoal(Request, Wire[pb.CoverageGoal]):
    """Draw until it can be said how large a share of all draws leaves a choice unchanged.

    Attributes:
        confidence: Of the statement, in (0.5, 1).
        coverage: Share of the draws of a perturbation that leave the choice unchanged, in (0.5, 1).
        max_draws: Draws of each perturbation at most; times the perturbations at most 4096, and
            enough to show the coverage where no draw changes the choice.
        one_look: Draw ``max_draws`` and look once (exact Clopper-Pearson bounds), rather than stop
            as soon as the statement can be made.
        pools: Pools that share the error, each an equal part, so that the statements hold for all
            of them together; 0: ``certify_pool`` has one, and in a session of ``plan`` the k-th
            pool has the share 6 / (pi^2 k^2), whatever their number.
        time_limit: Seconds that the draws of one pool may take at most, in (0, 300]; None: as long
            as the call's deadline leaves room to answer.
    """

    confidence: float = bounded(0.95, gt=0.5, lt=1)
    coverage: float = bounded(0.98, gt=0.5, lt=1)
    max_draws: int = bounded(1000, ge=1, le=MAX_VIEWS)
    one_look: bool = False
    pools: int = bounded(0, ge=0, le=MAX_POOLS)
    time_limit: float | None = bounded(None, gt=0, le=300, unit="seconds")

    @property
    def error(self) -> float:
        """Chance of a wrong statement that is allowed, over all pools."""
        return 1.0 - self.confidence

    def check_rules(self) -> None:
        """So many draws can show the coverage, if none changes the choice."""
        fewest = math.ceil(math.log(self.error / max(1, self.pools)) / math.log(self.coverage))
        if self.max_draws < fewest:
            raise ArgumentError(
                "max_draws",
                f"found {self.max_draws}, wanted at least {fewest}: fewer draws cannot show a "
                f"coverage of {self.coverage:g} at a confidence of {self.confidence:g}",
            )


@dataclass(frozen=True, repr=False, eq=False)
class CoverageFinding(Record, Wire[pb.CoverageFinding]):
    """Result of the draws of one perturbation for one choice, the winner or the elite set.

    Attributes:
        outcome: Whether the statement holds.
        draws: Draws that were looked at.
        changed: Those under which the choice, computed again, is another one.
        certified: Those under which it provably is not.
        near_ties: Unchanged ones whose choice the endpoint tolerance, where it is 0 a tie, leaves
            open.
        lower: At this confidence at least this share of draws leaves the choice unchanged.
        upper: At this confidence at most this share does.
        stop: Why drawing ended.
        looks: Times it was looked whether the statement can be made.
        sentence: The statement in words.
    """

    outcome: CoverageOutcome
    draws: int
    changed: int
    certified: int
    near_ties: int
    lower: float
    upper: float
    stop: CoverageStop
    looks: int
    sentence: str

    @property
    def holds(self) -> bool:
        """Whether the statement is shown."""
        return self.outcome is CoverageOutcome.HOLDS


@dataclass(frozen=True, repr=False, eq=False)
class StepCoverage(Record, Wire[pb.StepCoverage]):
    """The statements of a session's pools so far, taken together.

    Attributes:
        pool: Which pool of the session this one is, from 1.
        confidence: Of all statements together, as asked for.
        top1: HOLDS where the winner's holds in every pool so far, FAILS where it fails in one.
        elite: The same for the elite set; UNSPECIFIED without an elite count.
        sentence: In words.
    """

    pool: int
    confidence: float
    top1: CoverageOutcome
    elite: CoverageOutcome
    sentence: str


@dataclass(frozen=True, repr=False, eq=False)
class CoverageStatement(Record, Wire[pb.CoverageStatement]):
    """About all draws of one perturbation, from the draws that were made.

    Attributes:
        spec_index: Index into the perturbations.
        top1: Of the winner.
        elite: Of the elite set; None without an elite count.
        first_draw: Index of the first draw; the others follow it, under the request's seed.
        confidence: Of this pool's statements, each by itself: one minus its share of the error.
        coverage: As asked for.
        assumptions: What the statement takes for granted, in words.
        step: Of all pools of the session so far; None outside a session.
    """

    spec_index: int
    top1: CoverageFinding
    elite: CoverageFinding | None
    first_draw: int
    confidence: float
    coverage: float
    assumptions: str
    step: StepCoverage | None = None


LEAST, MOST = 1e-30, 1e30


def _check_weights(name: str, weights: tuple[float, ...]) -> None:
    wrong = next((at for at, w in enumerate(weights) if w and not LEAST <= w <= MOST), None)
    if wrong is not None:
        found = f"found {weights[wrong]!r}, wanted 0, or from {LEAST:g} to {MOST:g}"
        raise ArgumentError(f"{name}[{wrong}]", found)
    if weights and not any(weights):
        raise ArgumentError(name, "are all 0; leave them out, or give one above 0")


@dataclass(frozen=True)
class DistanceTerm(Request, Wire[pb.DistanceTerm]):
    """A distance of predicted latents to the goal, summed over predicted steps.

    Every weight is 0 or from 1e-30 to 1e30.

    Attributes:
        norm: How it is measured over latent coordinates; l2 unless said otherwise.
        squared: Whether it is squared.
        weight: Of the term in the cost, from 1e-30 to 1e30.
        step_weights: One for each predicted step; empty: the last step alone.
        coordinate_weights: One for each latent coordinate, at most 262,144; empty: 1. The mean of
            ``cost_reduction`` divides by their sum.
    """

    norm: Norm = Norm.L2
    squared: bool = True
    weight: float = bounded(1.0, ge=LEAST, le=MOST)
    step_weights: tuple[float, ...] = sized((), most=MAX_HORIZON)
    coordinate_weights: tuple[float, ...] = sized((), most=2**18)

    def check_rules(self) -> None:
        """Weights are in range, and one of each list is above 0."""
        _check_weights("step_weights", self.step_weights)
        _check_weights("coordinate_weights", self.coordinate_weights)


@dataclass(frozen=True)
class Objective(Request, Wire[pb.Objective]):
    """A planner's objective: distances to the goal, and a penalty on the actions.

    Attributes:
        terms: At most 16; the cost is their sum. Empty: the squared l2 distance of the last step.
        control_weights: Of the squared actions, which are summed over a candidate's blocks: one for
            all coordinates of a block, or one for each, 0 or from 1e-30 to 1e30. Empty: no penalty.
    """

    terms: tuple[DistanceTerm, ...] = sized((), most=16)
    control_weights: tuple[float, ...] = sized((), most=65536)

    def check_rules(self) -> None:
        """Weights are in range, and one of them is above 0."""
        _check_weights("control_weights", self.control_weights)
