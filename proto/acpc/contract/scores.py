"""Answers of ScoreCheckpoint and PreviewAnchors."""

from __future__ import annotations

import math
import re
from dataclasses import fields

import numpy as np

from acpc.arrays import NDArray
from acpc.contract.enums import Outcome, WireEnum
from acpc.contract.errors import ArgumentError, FailedPrecondition
from acpc.contract.evidence import Doubt, Evidence, Fit, FitOutcome, Interval
from acpc.contract.messages import Wire
from acpc.contract.numbers import NUMBERS, TITLES
from acpc.contract.provenance import Receipt
from acpc.contract.record import Columns, Record, Tabular, beside, cell
from acpc.contract.requests import CheckpointRef, Thresholds
from acpc.v1 import scoring_service_pb2 as pb

MEANING = (
    "IR: how far the shift moves predicted futures, in units of the clean motion (relative: over "
    "the reference's). SR: share of the eligible anchors, which have a partner in another state, "
    "that are predicted farther from it than the shift moves them. S: the smaller of the margins "
    "to both thresholds. Skill: the error of clean predictions over that of standing still."
)
"""What the names of a score's numbers stand for, in a line."""
FLOORS_IN_DOUBT = 10
"""Raw IR within so many rounding floors has fewer than three digits."""


class SkipReason(WireEnum):
    UNSPECIFIED = 0
    ONE_LABEL = 1
    NONE_IN_REACH = 2


class IrSummary(Record, Wire[pb.IrSummary]):
    horizon: int
    quantile: float
    ir_raw: float


class AnchorValues(Record, Wire[pb.AnchorValues]):
    anchor_ids: NDArray[np.int64]
    radius: NDArray[np.float64]
    motion_scale: NDArray[np.float64]
    different_state_distance: NDArray[np.float64]
    partner: NDArray[np.int64]
    draw_radius: NDArray[np.float64]
    skip_reasons: tuple[SkipReason, ...]
    step_radius: NDArray[np.float64] | None
    trajectory_ids: NDArray[np.int64] | None = None


class CheckpointScore(Record, Wire[pb.CheckpointScore]):
    checkpoint: CheckpointRef
    ir_raw: float
    sr: float
    anchors: int
    eligible: int
    skipped: int
    median_latent_distance: float
    summaries: tuple[IrSummary, ...]
    anchor_values: AnchorValues | None
    rounding_floor: float | None = None
    fit: Fit | None = None

    @property
    def skill(self) -> float | None:
        """Error of its clean predictions over that of standing still; None: not measured."""
        return None if self.fit is None else self.fit.skill

    @property
    def fit_note(self) -> str:
        """A warning in words where it surely does not predict these data, else empty."""
        if self.fit is None or self.fit.outcome is not FitOutcome.DOES_NOT_FIT:
            return ""
        return f"{self.checkpoint.name} {self.fit}"

    @property
    def rounding_note(self) -> str:
        """A warning in words where raw IR is within ten rounding floors, else empty."""
        floor = self.rounding_floor
        if not floor or self.ir_raw > FLOORS_IN_DOUBT * floor:
            return ""
        return (
            f"raw IR {self.ir_raw:.3g} of {self.checkpoint.name} is within {FLOORS_IN_DOUBT} "
            f"rounding floors ({floor:.2g}): rounding may move it by {floor / 100:.1g}; numeric "
            "mode fp64 gives its digits"
        )

    @property
    def different_label_distance(self) -> float | None:
        """Median over eligible anchors of D_i, in units of the motion scale; None without any."""
        if self.anchor_values is None or not self.eligible:
            return None
        return float(np.nanmedian(self.anchor_values.different_state_distance))


class Verdict(Record, Wire[pb.Verdict]):
    outcome: Outcome
    ir_relative: float | None
    score: float | None
    delta_score: float | None
    ir_passed: bool | None
    sr_passed: bool
    thresholds: Thresholds
    summary: str

    def limit(self, name: str) -> float | None:
        """Return what a number of the screen, by its column, is compared with; None: nothing."""
        limits = {"ir_relative": self.thresholds.ir, "sr": self.thresholds.sr, "score": 0.0}
        return {**limits, "skill": 1.0}.get(name)


class Score(Tabular, Record, Wire[pb.ScoreCheckpointResponse]):
    checkpoint: CheckpointScore
    reference: CheckpointScore | None
    verdict: Verdict
    receipt: Receipt
    evidence: Evidence | None = None

    @property
    def is_reference(self) -> bool:
        """Whether the checkpoint is compared with itself, and so can never pass."""
        return self.receipt.checkpoint_digest == self.receipt.reference_digest != ""

    @property
    def rounding_notes(self) -> tuple[str, ...]:
        """The warnings of both sides, empty where rounding leaves both raw IR three digits."""
        return self._notes("rounding_note")

    @property
    def fit_notes(self) -> tuple[str, ...]:
        """What makes IR and SR mean nothing: sides that do not predict the data; mostly empty."""
        return self._notes("fit_note")

    def _notes(self, name: str) -> tuple[str, ...]:
        sides = (self.checkpoint, self.reference)
        notes = [getattr(side, name) for side in sides if side is not None]
        return tuple(dict.fromkeys(note for note in notes if note))

    def gated(self, gate: str = "point") -> Outcome:
        """Returns the outcome by which a gate decides.

        Args:
            gate: ``"point"``: the numbers as they are; without a reference they pass nothing, but
                fail where SR does. ``"confident"``: what the intervals support, which may be
                undecided.

        Raises ArgumentError: Another gate; FailedPrecondition: The confident gate, where the score
        has no evidence.
        """
        if gate == "point":
            return self.verdict.outcome if self.verdict.sr_passed else Outcome.FAILED
        if gate != "confident":
            raise ArgumentError("gate", f"found {gate!r}, wanted point or confident")
        if self.evidence is None:
            raise FailedPrecondition(
                "this score has no evidence of how sure it is: score again, or gate on the "
                "point verdict",
                reason="NO_EVIDENCE",
            )
        return self.evidence.confident_outcome

    def interval(self, name: str) -> Interval | None:
        """The interval of a number, by its name in ``TITLES``; None where it has none."""
        fit = self.checkpoint.fit
        found = fit and fit.interval if name == "skill" else getattr(self.evidence, name, None)
        return found if isinstance(found, Interval) else None

    def numbers(self) -> dict[str, float | None]:
        """Every number of ``NUMBERS`` by its name; None where it is unknown."""
        return {name: getattr(getattr(self, x.of), name) for name, x in NUMBERS.items()}

    def metrics(self) -> dict[str, float]:
        """The finite numbers of the score, for an experiment tracker.

        Returns:
            ``ir``, ``sr``, ``skill`` with its ends and, with a reference, ``ir_relative``,
            ``score`` (S) and ``passed`` (1 or 0); with evidence its ``confidence`` and the ends of
            the intervals as ``ir_lower``, ``ir_upper``, ``sr_lower`` and so on. What is unknown or
            not finite is left out.
        """
        found, values = self.evidence, dict[str, float | None]()
        for name, number in self.numbers().items():
            if NUMBERS[name].tracked:
                short, held = name.removesuffix("_raw"), self.interval(name)
                values[short] = number
                values |= {f"{short}_{end}": getattr(held, end, None) for end in ("lower", "upper")}
        if self.verdict.ir_relative is not None:
            values["passed"] = float(self.verdict.outcome is Outcome.PASSED)
        values["confidence"] = None if found is None else found.confidence
        return {k: x for k, x in values.items() if x is not None and math.isfinite(x)}

    def table(self) -> Columns:
        """A row per side and anchor: the values of ``AnchorValues`` that are one number.

        Values per draw and per step are left out, and what the server left out is None.
        """
        sides = {"checkpoint": self.checkpoint, "reference": self.reference}
        held = {name: side.anchor_values for name, side in sides.items() if side is not None}
        values = {name: found for name, found in held.items() if found is not None}
        columns: dict[str, list[object]] = {"side": [], "anchor": []}
        for name, found in values.items():
            count = len(found.radius)
            columns["side"] += [name] * count
            columns["anchor"] += range(count)
            for field in fields(found):
                column = getattr(found, field.name)
                if np.ndim(column) == 2:
                    continue
                plain = [None] * count if column is None else [_number(item) for item in column]
                columns.setdefault(field.name, []).extend(plain or [None] * count)
        return columns

    @property
    def certainty(self) -> str:
        """How sure the verdict is, for whoever has met none of this; empty without evidence."""
        found = self.evidence
        if found is None:
            return ""
        blind = f"; {found.blind_spot}" if found.blind_spot else ""
        sure = f"{100 * found.sure:g} % sure of {found.of_what}{blind}"
        match found.confident_outcome:
            case Outcome.PASSED:
                return f"passes; {sure}"
            case Outcome.FAILED:
                return f"fails; {sure}"
            case Outcome.INCONCLUSIVE | Outcome.DOES_NOT_FIT as unjudged:
                unknown = "inconclusive: without a reference relative IR is unknown"
                sure = f"does not fit; {100 * found.confidence:g} % sure of new trajectories"
                return unknown if unjudged is Outcome.INCONCLUSIVE else sure
        if found.doubt is Doubt.DRAWS:
            return "undecided: all anchors share their draws, which are too few to be sure"
        doubt = {Doubt.IR: "relative IR", Doubt.SR: "SR", Doubt.BOTH: "both relative IR and SR"}
        count = self.checkpoint.anchors
        needed = found.needed(count)
        about = f", {needed} would probably decide it" if needed else ""
        where = doubt.get(found.doubt, "both requirements")
        few = f"{count} anchors are too few"
        if found.trajectories_to_decide:
            few = f"{found.trajectories} trajectories are too few: more episodes, not more anchors"
        return f"undecided: {few}{about}; the doubt is in {where} of {found.of_what}{blind}"

    @property
    def sentence(self) -> str:
        """The verdict in words, which begin with the outcome."""
        outcome, why = self.verdict.outcome.name, self.verdict.summary
        begun = re.match(r"(Passes|Fails)\b", why)
        return f"{outcome}{why[begun.end() :]}" if begun else f"{outcome}: {why}"

    def headline(self) -> str:
        """The verdict in words, and how sure it is."""
        return f"{self.sentence} ({self.certainty})" if self.certainty else self.sentence

    def shown(self, *, wide: bool = False) -> Columns:
        """The checkpoint beside its reference, its intervals, and what was wanted.

        ``wide``: the intervals of the other population, too.
        """
        limits, found = self.verdict.thresholds, self.evidence
        sides = [side for side in (self.checkpoint, self.reference) if side is not None]
        columns: dict[str, list[object]] = {"": list(TITLES.values())}
        for index, side in enumerate(sides):
            name = side.checkpoint.name
            columns["(reference)" if index else name] = [
                self._shown(number, side, first=not index) for number in TITLES
            ]
        if found is not None:
            held = f"{100 * found.confidence:g} % interval"
            columns[held] = [self.interval(number) for number in TITLES]
            if wide and found.other is not None:
                other = [getattr(found.other, number, None) for number in TITLES]
                columns[f"of {found.other.population.words}"] = other
        wanted = [NUMBERS[number].wanted.format(ir=limits.ir, sr=limits.sr) for number in TITLES]
        return {**columns, "wanted": wanted}

    def _shown(self, name: str, side: CheckpointScore, *, first: bool) -> object:
        """A number; as text where four digits put it on its threshold, on which it is not."""
        if not hasattr(side, name) and not first:
            return 1.0 if name == "ir_relative" else None
        number = getattr(side, name) if hasattr(side, name) else getattr(self.verdict, name)
        limit = self.verdict.limit(name)
        if not first or number is None or limit is None:
            return number
        text = beside(number, limit, ".4g")
        return number if text == cell(number) else text

    def meaning(self) -> str:
        """Explains the names in the table."""
        return MEANING


def _number(value: np.generic | WireEnum) -> object:
    """A per-anchor value as Python's own; an enum as its name."""
    return value.name.lower() if isinstance(value, WireEnum) else value.item()


class AnchorPreview(Record, Wire[pb.AnchorPreview]):
    anchor: int
    clean: NDArray[np.uint8]
    perturbed: NDArray[np.uint8]
    partner: NDArray[np.uint8] | None


class AnchorPreviews(Record, Wire[pb.PreviewAnchorsResponse]):
    previews: tuple[AnchorPreview, ...]
