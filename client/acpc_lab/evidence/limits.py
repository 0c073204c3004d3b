"""The severity at which a checkpoint stops passing, from severities of a kind that were scored."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from acpc.contract import TITLES, Columns, Tabular, beside, columns_of, curve_of, ends
from acpc_client import Outcome, Perturbation, Record, Score
from acpc_client.errors import ArgumentError, FailedPrecondition

Key = TypeVar("Key", bound=Hashable)


class LimitPoint(Record):
    """A severity that was scored, with its result.

    Attributes:
        shift: Its short form.
        severity: In the kind's own unit.
        outcome: The verdict of the numbers as they are.
        sure: The confident outcome.
        ir_relative: IR relative to the reference under the same shift.
        sr: SR; None where no anchor takes part.
        score: The screen score S; not negative where it passes.
        lower: Lower end of the interval of S.
        upper: Upper end.
        operation: Name of the job.
    """

    shift: str
    severity: float
    outcome: Outcome
    sure: Outcome
    ir_relative: float | None
    sr: float | None
    score: float
    lower: float
    upper: float
    operation: str = ""

    @classmethod
    def of(cls, shift: Perturbation, score: Score, operation: str = "") -> LimitPoint:
        """Return what a score shows of its severity.

        Raises FailedPrecondition: It has no evidence or no reference.
        """
        found, verdict = score.evidence, score.verdict
        if found is None or verdict.score is None or found.score is None:
            why = "this score has no reference or no evidence, without which there is no limit"
            raise FailedPrecondition(why, reason="NO_EVIDENCE")
        return cls(
            shift=str(shift),
            severity=shift.severity,
            outcome=verdict.outcome,
            sure=found.confident_outcome,
            ir_relative=verdict.ir_relative,
            sr=score.checkpoint.sr,
            score=verdict.score,
            lower=found.score.lower,
            upper=found.score.upper,
            operation=operation,
        )


class SeverityLimit(Tabular, Record):
    """Up to which severity the screen passes, with an interval.

    The limit is the largest severity that was scored below the first at which the screen does not
    pass, wherever that is: nothing is taken from severities that were not scored. At the confidence
    stated it is ``holds`` at least, and the checkpoint fails from ``breaks`` on; docs/limit.md says
    why no further error is paid for looking at several severities.

    Attributes:
        checkpoint: Name of the checkpoint.
        reference: Name of the reference.
        strongest: The strongest change that was scored, in short form.
        unit: What a severity is called: the kind's first parameter, or ``severity``.
        confidence: Of the interval, in (0.5, 1).
        estimate: The limit; 0 where the weakest severity does not pass, None where all pass.
        holds: The largest severity below the first at which it does not surely pass; 0: none.
        breaks: The smallest severity above the last at which it does not surely fail; None: none.
        broken_by: ``IR``, ``SR`` or ``both``: what fails at the first severity that does not pass;
            empty where all pass.
        monotone: Whether no severity passes above one that fails.
        points: What was scored, by severity.
        notes: Warnings in words.
    """

    checkpoint: str
    reference: str
    strongest: str
    unit: str
    confidence: float
    estimate: float | None
    holds: float
    breaks: float | None
    broken_by: str
    monotone: bool
    points: tuple[LimitPoint, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, scored: Iterable[tuple[Perturbation, Score, str]]) -> SeverityLimit:
        """Return the limit of severities that were all scored: changes, scores and job names.

        Raises ArgumentError: There are none; FailedPrecondition: One has no evidence or no
        reference, or checkpoint, reference or anchors are not those of the others.
        """
        ordered = sorted(scored, key=lambda item: item[0].severity)
        if not ordered:
            raise ArgumentError("scored", "found no severity, wanted at least one")
        points = tuple(LimitPoint.of(*item) for item in ordered)
        first = ordered[0][1]
        for _, score, _ in ordered[1:]:
            _require_alike(first, score)
        failing = [p for p in points if p.outcome is not Outcome.PASSED]
        at = failing[0].severity if failing else math.inf
        below = [p.severity for p in points if p.severity < at]
        doubt = min((p.severity for p in points if p.sure is not Outcome.PASSED), default=math.inf)
        last = max((p.severity for p in points if p.sure is not Outcome.FAILED), default=0.0)
        monotone = all(p.severity < at for p in points if p.outcome is Outcome.PASSED)
        assert first.evidence is not None and first.reference is not None  # noqa: S101 - as points
        return cls(
            checkpoint=first.checkpoint.checkpoint.name,
            reference=first.reference.checkpoint.name,
            strongest=str(ordered[-1][0]),
            unit=_unit([shift for shift, _, _ in ordered]),
            confidence=first.evidence.sure,
            estimate=(below or [0.0])[-1] if failing else None,
            holds=max((s for s in below if s < doubt), default=0.0),
            breaks=min((p.severity for p in points if p.severity > last), default=None),
            broken_by=_failing(ordered[points.index(failing[0])][1]) if failing else "",
            monotone=monotone,
            points=points,
            notes=() if monotone else (_NOT_MONOTONE,),
        )

    @property
    def passes(self) -> bool:
        """Whether the weakest severity that was scored passes."""
        return self.estimate != 0.0

    def table(self) -> Columns:
        """A row per severity that was scored."""
        names = ("shift", "severity", "ir_relative", "sr", "score", "lower", "upper")
        columns = columns_of(self.points, *names)
        for name in ("outcome", "sure"):
            columns[name] = [getattr(point, name).name.lower() for point in self.points]
        return columns

    def shown(self) -> Columns:
        """Returns the table to print: S and its interval share one column."""
        held = self.table()
        scores = [
            "{} ({} to {})".format(beside(p.score, 0.0, ".3g"), *ends(p.lower, p.upper, ".3g"))
            for p in self.points
        ]
        first = {
            TITLES["ir_relative"]: held["ir_relative"],
            "SR": held["sr"],
            TITLES["score"]: scores,
        }
        sure = {"verdict": held["outcome"], "for sure": held["sure"]}
        return {"shift": held["shift"], **first, **sure}

    @property
    def reached(self) -> float:
        """The estimate; where all severities pass, the strongest of them."""
        return self.points[-1].severity if self.estimate is None else self.estimate

    @property
    def brief(self) -> str:
        """The estimate; at the strongest severity scored, that it holds there."""
        return f"{self.reached:.3g}" + " or more" * (self.estimate is None)

    @property
    def interval(self) -> str:
        """Both ends in words, rounded outwards."""
        top = self.points[-1].severity
        low, high = ends(self.holds, top if self.breaks is None else self.breaks, ".3g")
        return f"[{low}, {high}]" if self.breaks is not None else f"[{low}, beyond {top:.3g}]"

    def headline(self) -> str:
        """The limit in words."""
        more = f"then breaks by {self.broken_by}"
        more = "the largest that was scored" if self.estimate is None else more
        low, high = ends(self.holds, self.holds if self.breaks is None else self.breaks, ".3g")
        holds = f"it holds up to {low}" if self.holds else "it holds at none of them"
        breaks = "" if self.breaks is None else f" and is broken from {high}"
        held = f"{self.checkpoint} holds up to {self.unit} {self.reached:.3g}, {more}"
        return f"{held}; for sure {holds}{breaks}"

    def meaning(self) -> str:
        """Explains the interval."""
        return (
            f"In brackets, at {100 * self.confidence:g} %, of what was scored: up to the first "
            "number it surely passes, from the second on it surely fails."
        )


_NOT_MONOTONE = (
    "the curve is not monotone: it passes again above a severity at which it fails; the limit is "
    "below the first failure"
)


def _require_alike(first: Score, other: Score) -> None:
    """Raises FailedPrecondition: The scores are not of one checkpoint, reference and anchors."""
    same = ["anchors_digest"] * (first.checkpoint.anchors == other.checkpoint.anchors)
    for name in ("checkpoint_digest", "reference_digest", *same):
        if getattr(first.receipt, name) != getattr(other.receipt, name):
            what = name.removesuffix("_digest")
            problem = f"the {what} changed while severities were scored; start again"
            raise FailedPrecondition(problem, reason="CHECKPOINT_CHANGED")


def _failing(score: Score) -> str:
    held = {"IR": score.verdict.ir_passed, "SR": score.verdict.sr_passed}
    failing = [name for name, passed in held.items() if not passed]
    return failing[0] if len(failing) == 1 else "both"


def _unit(shifts: Sequence[Perturbation]) -> str:
    first = next(iter(vars(shifts[-1])), "")
    own = all(vars(shift).get(first) == shift.severity for shift in shifts)
    return first if own else "severity"


def limits(
    scored: Iterable[tuple[Key, Perturbation, Score | None, str]],
) -> dict[tuple[Key, str], SeverityLimit]:
    """Return the limit of each key and curve of which at least two severities were scored.

    Left out is what has no severity, no reference or no evidence, and a curve whose checkpoint,
    reference or anchors changed meanwhile.

    Args:
        scored: What differs by more than the severity, the change, its score, the job's name.
    """
    curves = defaultdict(list)
    for key, shift, score, operation in scored:
        curve = curve_of(shift)
        if curve and score and score.evidence and score.evidence.score and score.reference:
            curves[key, curve].append((shift, score, operation))
    found = {}
    for place, points in curves.items():
        if len(points) > 1:
            with suppress(FailedPrecondition):
                found[place] = SeverityLimit.of(points)
    return found
