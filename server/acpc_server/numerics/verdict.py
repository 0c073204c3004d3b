"""Relative IR, the screen score and the verdict on a checkpoint, in float64."""

import math

from acpc.contract import Outcome, Thresholds, Verdict

from acpc_server.errors import FailedPrecondition, InvalidArgument

EPS_SCORE = 1e-12
"""Stabiliser of the screen score, epsilon_score in the paper."""


def relative_ir(ir_raw: float, reference_ir_raw: float) -> float:
    """Return raw IR over the reference's, Eq. ir-relative in the paper; FailedPrecondition at 0."""
    if not (math.isfinite(reference_ir_raw) and reference_ir_raw > 0):
        raise FailedPrecondition(
            f"the reference checkpoint has raw IR {reference_ir_raw}, so relative IR is undefined; "
            "use an unaugmented checkpoint that reacts to this visual shift"
        )
    return ir_raw / reference_ir_raw


def check_thresholds(t_ir: float, t_sr: float) -> None:
    """Raise InvalidArgument for a t_IR not finite and above 0 or a t_SR outside (0, 1]."""
    if not (math.isfinite(t_ir) and t_ir > 0):
        raise InvalidArgument("thresholds.ir", f"is {t_ir}; give a finite value above 0")
    if not 0 < t_sr <= 1:
        raise InvalidArgument("thresholds.sr", f"is {t_sr}; give a value in (0, 1]")


def screen_score(ir_relative: float, sr: float, t_ir: float, t_sr: float) -> float:
    """Compute S, Eq. ir-sr-score in the paper, for thresholds that pass :func:`check_thresholds`.

    Nonnegative exactly when ``ir_relative <= t_ir`` and ``sr >= t_sr``, in float64 too: a
    difference of two float64 numbers has the sign of the exact one, and neither division can round
    it to zero, because differences near a threshold above 1 are far from underflow.
    """
    return min(
        (t_ir - ir_relative) / (abs(t_ir) + EPS_SCORE), (sr - t_sr) / (abs(t_sr) + EPS_SCORE)
    )


def delta_score(
    ir_relative: float, sr: float, reference_sr: float, t_ir: float, t_sr: float
) -> float:
    """Compute Delta S = S(theta_1; theta_0) - S(theta_0; theta_0), Sec. Checkpoint Screening.

    The reference's relative IR is 1 by definition.
    """
    own = screen_score(1.0, reference_sr, t_ir, t_sr)
    return screen_score(ir_relative, sr, t_ir, t_sr) - own


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
    passed one decides nothing. Its raw IR and SR are given together. Raises InvalidArgument: A
    threshold or a measurement outside its range, or half a reference; FailedPrecondition: As
    :func:`relative_ir`.
    """
    check_thresholds(t_ir, t_sr)
    _check_fraction("sr", sr)
    if not (math.isfinite(ir_raw) and ir_raw >= 0):
        raise InvalidArgument("ir_raw", f"is {ir_raw}; raw IR is finite and at least 0")
    sr_passed = sr >= t_sr
    if reference_ir_raw is None or reference_sr is None:
        if reference_ir_raw is not None or reference_sr is not None:
            raise InvalidArgument("reference", "has only one of raw IR and SR; give both or none")
        ir_relative = score = change = ir_passed = None
        outcome = Outcome.INCONCLUSIVE if sr_passed else Outcome.FAILED
    else:
        _check_fraction("reference.sr", reference_sr)
        ir_relative = relative_ir(ir_raw, reference_ir_raw)
        score = screen_score(ir_relative, sr, t_ir, t_sr)
        change = delta_score(ir_relative, sr, reference_sr, t_ir, t_sr)
        ir_passed = ir_relative <= t_ir
        outcome = Outcome.PASSED if ir_passed and sr_passed else Outcome.FAILED
    return Verdict(
        outcome=outcome,
        ir_relative=ir_relative,
        score=score,
        delta_score=change,
        ir_passed=ir_passed,
        sr_passed=sr_passed,
        thresholds=Thresholds(ir=t_ir, sr=t_sr),
        summary=_summary(sr, ir_relative, t_ir, t_sr),
    )


def _check_fraction(field: str, sr: float) -> None:
    if not 0 <= sr <= 1:
        raise InvalidArgument(field, f"is {sr}; SR is a fraction in [0, 1]")


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
