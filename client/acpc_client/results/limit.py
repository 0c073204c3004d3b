"""The severity at which a checkpoint stops passing: what to score, and what it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from acpc.contract import (
    ArgumentError,
    Columns,
    FailedPrecondition,
    Outcome,
    Perturbation,
    Record,
    Score,
    Tabular,
    beside,
    columns_of,
    ends,
)


@dataclass(frozen=True, repr=False, eq=False)
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


@dataclass(frozen=True, repr=False, eq=False)
class SeverityLimit(Tabular, Record):
    """Up to which severity the screen passes, with an interval.

    The limit is where the screen first stops passing. At the confidence stated it lies between
    ``holds`` and ``breaks``; docs/limit.md says why no further error is paid for looking at several
    severities. An end lies where that end of the interval of S crosses zero, rounded outwards: by
    how far the curve may bend between neighbouring severities, else to one that was scored.

    Attributes:
        checkpoint: Name of the checkpoint.
        reference: Name of the reference.
        strongest: The strongest change that might have been scored, in short form.
        unit: What a severity is called: the kind's first parameter, or ``severity``.
        confidence: Of the interval, in (0.5, 1).
        estimate: Where the score S crosses zero, between two severities that were scored; None
            where it passes at the strongest.
        holds: Up to which severity it surely passes; 0 where it does at none.
        breaks: From which severity on it surely fails; None: at none.
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

        Raises ArgumentError: There are none; FailedPrecondition: See ``LimitSearch.add``.
        """
        ordered = sorted(scored, key=lambda item: item[0].severity)
        search = LimitSearch([shift for shift, _, _ in ordered], max(1, len(ordered)))
        for place, (_, score, operation) in enumerate(ordered):
            search.add(place, score, operation)
        return search.result()

    @property
    def passes(self) -> bool:
        """Whether any severity that was scored passes, all weaker ones included."""
        return self.points[0].outcome is Outcome.PASSED

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
        first = {"IR relative": held["ir_relative"], "SR": held["sr"], "score S": scores}
        sure = {"verdict": held["outcome"], "for sure": held["sure"]}
        return {"shift": held["shift"], **first, **sure}

    @property
    def brief(self) -> str:
        """The estimate; at the strongest severity scored, that it holds there."""
        if self.estimate is None:
            return f"{self.points[-1].severity:.3g} or more"
        return f"{self.estimate:.3g}"

    @property
    def interval(self) -> str:
        """Both ends in words, rounded outwards."""
        top = self.points[-1].severity
        low, high = ends(self.holds, top if self.breaks is None else self.breaks, ".3g")
        return f"[{low}, {high}]" if self.breaks is not None else f"[{low}, beyond {top:.3g}]"

    def headline(self) -> str:
        """The limit in words."""
        at, more = self.estimate, f"; breaks by {self.broken_by}"
        if at is None:
            at, more = self.points[-1].severity, ", the strongest scored"
        return f"{self.checkpoint} holds up to {self.unit} {at:.3g} {self.interval}{more}"

    def meaning(self) -> str:
        """Explains the interval."""
        return (
            f"In brackets: where the limit lies at {100 * self.confidence:g} %; up to the first "
            "number it surely passes, from the second on it surely fails."
        )


class LimitSearch:
    """Chooses severities to score, one after another, and says what they show.

    Three places are looked for: where S, the lower end of its interval and the upper end cross
    zero. The widest bracket is cut next, where its margins say the crossing is, or in the middle.

    Args:
        shifts: Changes of one kind by severity, none of which changes nothing.
        most: How many of them may be scored, at least 1.
    """

    def __init__(self, shifts: Sequence[Perturbation], most: int) -> None:
        if not most >= 1:
            raise ArgumentError("evaluations", f"found {most}, wanted at least 1")
        self.shifts = tuple(shifts)
        self._most = most
        self._scores: dict[int, tuple[Score, str]] = {}

    def next(self) -> int | None:
        """Return the place of the severity to score next; None when nothing is left to learn."""
        if len(self._scores) >= min(self._most, len(self.shifts)):
            return None
        sought = {margin: self._bracket(margin) for margin in _HOLDS}
        margin, (below, above) = max(sought.items(), key=lambda item: item[1][1] - item[1][0])
        return self._between(below, above, margin) if above - below > 1 else None

    def add(self, place: int, score: Score, operation: str = "") -> LimitPoint:
        """Take in what was scored at a place, and return it as a point.

        Raises FailedPrecondition: Without evidence or a reference, or its checkpoint, reference or
        anchors are not those of the severities before.
        """
        if score.evidence is None or score.verdict.score is None or score.evidence.score is None:
            why = "this score has no reference or no evidence, without which there is no limit"
            raise FailedPrecondition(why, reason="NO_EVIDENCE")
        for before, _ in self._scores.values():
            same = ["anchors_digest"] * (before.checkpoint.anchors == score.checkpoint.anchors)
            for name in ("checkpoint_digest", "reference_digest", *same):
                if getattr(before.receipt, name) != getattr(score.receipt, name):
                    what = name.removesuffix("_digest")
                    problem = f"the {what} changed while severities were scored; start again"
                    raise FailedPrecondition(problem, reason="CHECKPOINT_CHANGED")
        self._scores[place] = score, operation
        return self._point(place)

    def result(self) -> SeverityLimit:
        """Return what is known; raises ArgumentError before anything was scored."""
        if not self._scores:
            raise ArgumentError("points", "nothing was scored")
        places = sorted(self._scores)
        points = tuple(map(self._point, places))
        score = self._scores[places[0]][0]
        sure, broken = self._bracket("lower"), self._bracket("upper")
        below, above = self._bracket("score")
        estimate, by = None, ""
        if above < len(self.shifts):
            estimate, by = self._estimate(below, above), _failing(self._scores[above][0])
        found = score.evidence
        assert found is not None and score.reference is not None  # noqa: S101 - as add() saw
        passing = [p.outcome is Outcome.PASSED for p in points]
        monotone = passing == sorted(passing, reverse=True)
        return SeverityLimit(
            checkpoint=score.checkpoint.checkpoint.name,
            reference=score.reference.checkpoint.name,
            strongest=str(self.shifts[-1]),
            unit=_unit(self.shifts),
            confidence=found.sure,
            estimate=estimate,
            holds=self._end(*sure, "lower") if sure[0] >= 0 else 0.0,
            breaks=self._end(*broken, "upper") if broken[1] < len(self.shifts) else None,
            broken_by=by,
            monotone=monotone,
            points=points,
            notes=tuple(self._notes(len(points), monotone)),
        )

    def _notes(self, scored: int, monotone: bool) -> Iterator[str]:
        if not monotone:
            yield (
                "the curve is not monotone: it passes again above a severity at which it fails; "
                "the limit is where it first fails"
            )
        if self.next() is None and scored < len(self.shifts) and scored >= self._most:
            yield f"{scored} severities were scored, as many as were asked for; more narrow it down"

    def _bracket(self, margin: str) -> tuple[int, int]:
        """The scored places around a crossing; -1 and the count stand for the ends.

        All places up to the left one hold; of the upper end none from the right one on does.
        """
        holds = _HOLDS[margin]
        holding = [place for place, (score, _) in self._scores.items() if holds(score)]
        failing = self._scores.keys() - holding
        if margin == "upper":
            below = max(holding, default=-1)
            return below, min((x for x in failing if x > below), default=len(self.shifts))
        above = min(failing, default=len(self.shifts))
        return max((place for place in holding if place < above), default=-1), above

    def _between(self, below: int, above: int, margin: str) -> int:
        ends = [self._scores.get(place) for place in (below, above)]
        values = [_margin(end[0], margin) if end else math.nan for end in ends]
        part = values[0] / (values[0] - values[1]) if values[0] > values[1] else 0.5
        if not 0 <= part <= 1:  # an infinite end, or none
            part = 0.5
        return min(max(round(below + part * (above - below)), below + 1), above - 1)

    def _estimate(self, below: int, above: int) -> float:
        """Estimates the severity between two places at which S is zero; at -1 S is not known."""
        right = self._at(above, "score")
        if below < 0:
            return right[0] / 2
        left = self._at(below, "score")
        return _zero(left, right, (left[0] + right[0]) / 2)

    def _end(self, below: int, above: int, margin: str) -> float:
        """Finds where an end of the interval of S is zero, or an outer bound of that severity.

        A curve that bends one way between neighbours crosses zero between where the line through
        both does and where lines through either and the next one beyond it do.
        """
        outward = min if margin == "lower" else max
        known = sorted(self._scores)
        outer = self.shifts[below if margin == "lower" else above].severity
        if above - below > 1 or not {below, above} <= {*known}:
            return outer
        at = known.index(below)
        around = [self._at(place, margin) for place in known[max(0, at - 1) : at + 3]]
        left, right = self._at(below, margin), self._at(above, margin)
        if len(around) < 3 or not all(math.isfinite(value) for _, value in around):
            return outer
        zeros = [_zero(first, second, outer) for first, second in pairwise(around)]
        return min(max(outward(zeros), left[0]), right[0])

    def _at(self, place: int, margin: str) -> tuple[float, float]:
        return self.shifts[place].severity, _margin(self._scores[place][0], margin)

    def _point(self, place: int) -> LimitPoint:
        score, operation = self._scores[place]
        found, shift = score.evidence, self.shifts[place]
        assert found is not None  # noqa: S101 - as add() saw
        return LimitPoint(
            shift=str(shift),
            severity=shift.severity,
            outcome=score.verdict.outcome,
            sure=found.confident_outcome,
            ir_relative=score.verdict.ir_relative,
            sr=score.checkpoint.sr,
            score=_margin(score, "score"),
            lower=_margin(score, "lower"),
            upper=_margin(score, "upper"),
            operation=operation,
        )


def _zero(left: tuple[float, float], right: tuple[float, float], otherwise: float) -> float:
    """Intersects a falling line through two points, (severity, value), with zero."""
    (start, high), (end, low) = left, right
    return start + (end - start) * high / (high - low) if high > low else otherwise


def _margin(score: Score, of: str) -> float:
    if of == "score":
        return math.nan if score.verdict.score is None else score.verdict.score
    held = score.evidence.score if score.evidence else None
    return float(getattr(held, of)) if held else math.nan


_HOLDS: dict[str, Callable[[Score], bool]] = {
    "lower": lambda score: score.gated("confident") is Outcome.PASSED,
    "upper": lambda score: score.gated("confident") is not Outcome.FAILED,
    "score": lambda score: score.verdict.outcome is Outcome.PASSED,
}
"""Up to where each margin of a score holds: it surely passes, may pass, passes."""


def _failing(score: Score) -> str:
    held = {"IR": score.verdict.ir_passed, "SR": score.verdict.sr_passed}
    failing = [name for name, passed in held.items() if not passed]
    return failing[0] if len(failing) == 1 else "both"


def _unit(shifts: Sequence[Perturbation]) -> str:
    first = next(iter(vars(shifts[-1])), "")
    own = all(vars(shift).get(first) == shift.severity for shift in shifts)
    return first if own else "severity"
