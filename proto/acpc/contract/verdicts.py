"""Relative IR, the screen score and the verdict on a checkpoint, in float64; and how sure it is.

A verdict compares numbers, or the ends of their intervals, with thresholds, so that a score keeps
all that a verdict under other thresholds takes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from acpc.contract.enums import Outcome
from acpc.contract.errors import ArgumentError, FailedPrecondition
from acpc.contract.evidence import Doubt, Evidence, EvidenceOptions, Interval, PopulationEvidence
from acpc.contract.fields import bounds_of, check
from acpc.contract.plain import to_plain
from acpc.contract.requests import Thresholds
from acpc.contract.scores import AnchorValues, Score, Verdict

EPS_SCORE = 1e-12
"""Stabiliser of the screen score, epsilon_score in the paper."""
DERIVED = "from the intervals of relative IR and SR"
LARGEST = 1e150
"""Magnitude that no measurement reaches; the square of a larger number may overflow."""


def relative_ir(ir_raw: float, reference_ir_raw: float) -> float:
    """Return raw IR over the reference's, Eq. ir-relative in the paper; FailedPrecondition at 0."""
    if not (math.isfinite(reference_ir_raw) and reference_ir_raw > 0):
        raise FailedPrecondition(
            f"the reference checkpoint has raw IR {reference_ir_raw}, so relative IR is undefined; "
            "use an unaugmented checkpoint that reacts to this visual shift"
        )
    return ir_raw / reference_ir_raw


def screen_score(ir_relative: float, sr: float, t_ir: float, t_sr: float) -> float:
    """Compute S, Eq. ir-sr-score in the paper, for thresholds in their ranges.

    Nonnegative exactly when ``ir_relative <= t_ir`` and ``sr >= t_sr``, in float64 too: a
    difference of two float64 numbers has the sign of the exact one, and neither division can round
    it to zero, because differences near a threshold above 1 are far from underflow.
    """
    return min(
        (t_ir - ir_relative) / (abs(t_ir) + EPS_SCORE), (sr - t_sr) / (abs(t_sr) + EPS_SCORE)
    )


def screen(
    *,
    ir_raw: float,
    sr: float,
    t_ir: float,
    t_sr: float,
    reference_ir_raw: float | None = None,
    reference_sr: float | None = None,
) -> Verdict:
    """Apply the checkpoint screen of the paper (Sec. Checkpoint Screening).

    The reference is the unaugmented checkpoint of the same task, run and family, measured under the
    same visual shift. Without it relative IR is unknown: a failed SR still fails the screen, a
    passed one decides nothing. Its raw IR and SR are given together. Raises ArgumentError: A
    threshold or a measurement outside its range, or half a reference; FailedPrecondition: As
    :func:`relative_ir`.
    """
    limits = Thresholds(t_ir, t_sr)
    check(limits, "thresholds")
    for name, share in {"sr": sr, "reference.sr": reference_sr}.items():
        if share is not None and not 0 <= share <= 1:
            raise ArgumentError(name, f"is {share}; SR is a fraction in [0, 1]")
    if not (math.isfinite(ir_raw) and ir_raw >= 0):
        raise ArgumentError("ir_raw", f"is {ir_raw}; raw IR is finite and at least 0")
    sr_passed = sr >= t_sr
    if reference_ir_raw is None or reference_sr is None:
        if reference_ir_raw is not None or reference_sr is not None:
            raise ArgumentError("reference", "has only one of raw IR and SR; give both or none")
        ir_relative = score = change = ir_passed = None
        outcome = Outcome.INCONCLUSIVE if sr_passed else Outcome.FAILED
    else:
        ir_relative = relative_ir(ir_raw, reference_ir_raw)
        score = screen_score(ir_relative, sr, t_ir, t_sr)
        # Delta S = S(theta_1; theta_0) - S(theta_0; theta_0): the reference's relative IR is 1.
        change = score - screen_score(1.0, reference_sr, t_ir, t_sr)
        ir_passed = ir_relative <= t_ir
        outcome = Outcome.PASSED if ir_passed and sr_passed else Outcome.FAILED
    return Verdict(
        outcome=outcome,
        ir_relative=ir_relative,
        score=score,
        delta_score=change,
        ir_passed=ir_passed,
        sr_passed=sr_passed,
        thresholds=limits,
        summary=_summary(sr, ir_relative, t_ir, t_sr),
    )


def confident_outcome(
    ir_relative: Interval | None, sr: Interval, limits: Thresholds
) -> tuple[Outcome, Doubt]:
    """The outcome that intervals support, and what leaves it undecided.

    Without a reference, of which relative IR is None, nothing passes.
    """
    sr_passed = sr.lower >= limits.sr
    ir_passed = ir_relative is None or ir_relative.upper <= limits.ir
    if sr.upper < limits.sr or (ir_relative is not None and ir_relative.lower > limits.ir):
        return Outcome.FAILED, Doubt.NONE
    if sr_passed and ir_passed:
        return (Outcome.INCONCLUSIVE if ir_relative is None else Outcome.PASSED), Doubt.NONE
    if ir_passed:
        return Outcome.UNDECIDED, Doubt.SR
    return Outcome.UNDECIDED, Doubt.IR if sr_passed else Doubt.BOTH


def score_interval(
    ir_relative: Interval | None, sr: Interval, limits: Thresholds
) -> Interval | None:
    """The interval of S: as good as both requirements at one of their ends."""
    if ir_relative is None:
        return None
    lower = screen_score(ir_relative.upper, sr.lower, limits.ir, limits.sr)
    upper = screen_score(ir_relative.lower, sr.upper, limits.ir, limits.sr)
    return Interval(lower, upper, DERIVED)


def delta_interval(
    score: Interval, point: float, reference_sr: Interval, at: float, limits: Thresholds
) -> Interval:
    """The interval of delta S, from those of S and the reference's (Zou and Donner 2008).

    ``point`` is S, and ``at`` the reference's SR.
    """
    ends = (reference_sr.lower, at, reference_sr.upper)
    low, own, high = (screen_score(1.0, sr, limits.ir, limits.sr) for sr in ends)
    down = float(np.hypot(point - score.lower, high - own))
    up = float(np.hypot(score.upper - point, own - low))
    return Interval(point - own - down, point - own + up, DERIVED)


def judge_again(score: Score, limits: Thresholds) -> Score:
    """Judges a stored score by other thresholds, as the server would have.

    The intervals stay as they are, at the confidence that they were made for. Unknown is how many
    anchors would decide it, and p-values are those of the confidence alone. Where the job stopped
    as soon as it knew, at thresholds that were others, each look counts with the larger of its two
    errors, so that the verdict is a little less sure.

    Raises ArgumentError: A threshold outside its range; FailedPrecondition: Raw IR of 0.
    """
    own, other, held = score.checkpoint, score.reference, score.verdict.thresholds
    if (limits.ir, limits.sr) == (held.ir, held.sr):
        return score
    found = screen(
        ir_raw=own.ir_raw,
        sr=own.sr,
        t_ir=limits.ir,
        t_sr=limits.sr,
        reference_ir_raw=None if other is None else other.ir_raw,
        reference_sr=None if other is None else other.sr,
    )
    found = unless_misfit(found, *score.fit_notes[:1])
    return replace(score, verdict=found, evidence=score.evidence and _weighed(score, found))


def unless_misfit(verdict: Verdict, why: str = "") -> Verdict:
    """The verdict; where a side does not predict the data (``why``), nothing passes."""
    if not why or verdict.outcome is Outcome.FAILED:
        return verdict
    summary = f"IR and SR mean nothing: {why}."
    return replace(verdict, outcome=Outcome.DOES_NOT_FIT, summary=summary)


def _weighed(score: Score, verdict: Verdict) -> Evidence:
    """The evidence, at the thresholds of a verdict."""
    found, limits, reference = score.evidence, verdict.thresholds, score.reference
    assert found is not None  # noqa: S101 - as asked before
    shared = Doubt.DRAWS in (found.doubt, found.other and found.other.doubt)

    def decide(of: Evidence | PopulationEvidence) -> tuple[Outcome, Doubt]:
        if shared:
            return Outcome.UNDECIDED, Doubt.DRAWS
        return confident_outcome(of.ir_relative, of.sr, limits)

    (outcome, doubt), other, looks = decide(found), found.other, found.looks
    if score.fit_notes and outcome is not Outcome.FAILED:
        outcome, doubt = Outcome.DOES_NOT_FIT, Doubt.NONE
    if other is not None:
        whether, why = decide(other)
        margin = score_interval(other.ir_relative, other.sr, limits)
        other = replace(other, score=margin, confident_outcome=whether, doubt=why)
    if looks is not None:
        spent = sum(max(look.passing, look.failing) for look in looks.looks)
        unknown = tuple(replace(look, p_passed=1.0, p_failed=1.0) for look in looks.looks)
        looks = replace(looks, confidence=1 - spent, looks=unknown)
    margin, change = score_interval(found.ir_relative, found.sr, limits), None
    if margin and reference and found.reference_sr and verdict.score is not None:
        of_reference = (found.reference_sr, reference.sr)
        change = delta_interval(margin, verdict.score, *of_reference, limits)
    alpha = 1 - found.confidence
    return replace(
        found,
        score=margin,
        delta_score=change,
        confident_outcome=outcome,
        doubt=doubt,
        anchors_to_decide=None,
        trajectories_to_decide=None,
        p_passed=alpha if outcome is Outcome.PASSED else 1.0,
        p_failed=alpha if outcome is Outcome.FAILED else 1.0,
        looks=looks,
        other=other,
    )


def _summary(sr: float, ir_relative: float | None, t_ir: float, t_sr: float) -> str:
    """Say the verdict in a sentence for a reader who has not read the paper."""
    found, wanted = _tell_apart(100 * sr, 100 * t_sr)
    separated = f"{found} % of the tested different-state pairs stay separated"
    sr_text = f"{separated} (needs at least {wanted} %)"
    sr_passed = sr >= t_sr
    if ir_relative is None:
        if sr_passed:
            return (
                f"Inconclusive: SR passes, {sr_text}, but relative IR is unknown without the "
                "unaugmented reference checkpoint; name it to get a verdict."
            )
        return f"Fails on SR: only {sr_text}; a reference checkpoint could not change that."
    found, wanted = _tell_apart(ir_relative, t_ir)
    ir_text = f"{found} times the reference's (needs at most {wanted})"
    if ir_relative > t_ir:
        if sr_passed:
            return (
                f"Fails on relative IR: sensitivity to the visual change is {ir_text}; "
                f"SR passes, {sr_text}."
            )
        return f"Fails on both: sensitivity to the visual change is {ir_text}, and only {sr_text}."
    if sr_passed:
        return f"Passes: sensitivity to the visual change is {ir_text}, and {sr_text}."
    cause = (
        "a collapsed representation shows the same low IR"
        if sr == 0
        else "low IR alone does not show that states are still told apart"
    )
    return f"Fails on SR: only {sr_text}; relative IR passes at {found}, but {cause}."


def _tell_apart(found: float, wanted: float) -> tuple[str, str]:
    """Format both numbers with the fewest decimals, at least two, that show whether they differ."""
    for decimals in range(2, 18):
        texts = f"{found:.{decimals}f}", f"{wanted:.{decimals}f}"
        if texts[0] != texts[1] or found == wanted:
            return texts
    return repr(found), repr(wanted)


def check_score(score: Score) -> None:
    """Raises ArgumentError with the path of the first number that no measurement gives."""
    check(score.verdict.thresholds, "answer.verdict.thresholds")
    if score.evidence is not None:
        found, range_ = score.evidence.confidence, bounds_of(EvidenceOptions)["confidence"]
        if not range_.holds(found):
            wanted = f"found {found}, wanted {range_.wanted(whole=False)}"
            raise ArgumentError("answer.evidence.confidence", wanted)
    to_plain(score, _check_float, "answer")
    for name, side in {"checkpoint": score.checkpoint, "reference": score.reference}.items():
        if side and side.anchor_values:
            _check_values(side.anchor_values, f"answer.{name}.anchor_values")


def _check_float(value: Any, path: str) -> Any:
    if isinstance(value, float) and LARGEST < abs(value) < math.inf:
        raise ArgumentError(path, f"found {value}, wanted a magnitude of at most {LARGEST:g}")
    return value


def _check_values(values: AnchorValues, path: str) -> None:
    count = len(values.anchor_ids)
    for name, found in vars(values).items():
        if not isinstance(found, np.ndarray):
            continue
        if len(found) != count:
            wanted = f"wanted {count}, as many as anchor_ids"
            raise ArgumentError(f"{path}.{name}", f"found {len(found)} entries, {wanted}")
        wrong, wanted = ~(np.abs(found) <= LARGEST), f"a finite number of at most {LARGEST:g}"
        if name == "partner":
            wrong, wanted = (found < -1) | (found >= count), "an index of an anchor, or -1"
        elif name == "different_state_distance":
            wrong, wanted = np.abs(found) > LARGEST, f"{wanted}, or NaN where skipped"
        for place in np.argwhere(wrong)[:1].tolist():
            at = "".join(f"[{index}]" for index in place)
            bad = found[tuple(place)]
            raise ArgumentError(f"{path}.{name}{at}", f"found {bad}, wanted {wanted}")
