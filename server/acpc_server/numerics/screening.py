"""Checkpoint-level IR, SR, relative IR, the screen score and the verdict. All in float64."""

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.numerics.consistency import acpc, step_distances
from acpc_server.numerics.pairing import Check, go_on, off_diagonal_quantile
from acpc_server.numerics.quantiles import linear_quantile, median

EPS_NORM = 1e-8
"""Stabiliser of the clean-motion scale, epsilon_norm in the paper."""

EPS_SCORE = 1e-12
"""Stabiliser of the screen score, epsilon_score in the paper."""


class Outcome(StrEnum):
    """What the screen says about a checkpoint."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Verdict:
    """The screen's answer; fields that need a reference are None without one.

    Attributes:
        outcome: Passed, failed, or inconclusive (SR passes, relative IR unknown).
        ir_relative: Raw IR over the reference's.
        score: S; nonnegative exactly when both requirements hold.
        delta_score: S minus the reference's own S.
        ir_passed: ``ir_relative <= t_ir``.
        sr_passed: ``sr >= t_sr``.
        t_ir: Threshold of relative IR.
        t_sr: Threshold of SR.
        summary: One sentence that says what decided.
    """

    outcome: Outcome
    ir_relative: float | None
    score: float | None
    delta_score: float | None
    ir_passed: bool | None
    sr_passed: bool
    t_ir: float
    t_sr: float
    summary: str


def transitions(observed: Float[Tensor, "n frames dim"]) -> Float64[Tensor, "n steps"]:
    """Displacements ||u_k - u_(k-1)|| inside Eq. clean-transition-scale in the paper.

    Args:
        observed: Projected embeddings u_0..u_H of the last history frame and the H observed clean
            frames after it, (n, H + 1, dim).

    Returns:
        l2 displacements of the H transitions, in latent units.

    Raises:
        InvalidArgument: Fewer than two frames.
    """
    if observed.shape[1] < 2:
        raise InvalidArgument(
            "observed", f"has {observed.shape[1]} frames per anchor; motion needs at least 2"
        )
    return step_distances(observed[:, :-1], observed[:, 1:])


def motion_scale_of(displacements: Float64[Tensor, "n steps"]) -> Float64[Tensor, "n"]:
    """Clean-motion scale s_i, Eq. clean-transition-scale in the paper: the median displacement."""
    return median(displacements)


def motion_scale(observed: Float[Tensor, "n frames dim"]) -> Float64[Tensor, "n"]:
    """Clean-motion scale s_i straight from the embeddings that :func:`transitions` takes."""
    return motion_scale_of(transitions(observed))


def normalised_radius(
    pair_acpc: Float64[Tensor, "n draws"], scale: Float64[Tensor, "n"]
) -> Float64[Tensor, "n draws"]:
    """R_i^(m) = ACPC / (s_i + 1e-8), Eq. normalized-same-state-radius in the paper."""
    return pair_acpc / (scale[:, None] + EPS_NORM)


def step_radius(
    distances: Float64[Tensor, "n draws horizon"], scale: Float64[Tensor, "n"]
) -> Float64[Tensor, "n horizon"]:
    """How far the perturbation pushes each predicted step, in units of clean one-step motion.

    The norms inside Eq. acpc-h in the paper, normalised as in Eq. normalized-same-state-radius and
    averaged over draws.

    Args:
        distances: Step distances of ``consistency.step_distances``.
        scale: Clean-motion scale s_i.
    """
    return (distances / (scale[:, None, None] + EPS_NORM)).mean(dim=1)


def invariance_radius(draw_radius: Float64[Tensor, "n draws"], quantile: float) -> float:
    """Raw IR, Eq. ir-raw in the paper: quantile over anchors of the mean over draws.

    Args:
        draw_radius: Normalised radii of :func:`normalised_radius`.
        quantile: q in [0, 1], with linear interpolation; the paper's protocol has 0.90.

    Returns:
        Raw IR, in units of clean one-step motion.

    Raises:
        InvalidArgument: No anchors, no draws, or a bad quantile.
        FailedPrecondition: A radius is not finite.
    """
    anchors, draws = draw_radius.shape
    if draws == 0:
        raise InvalidArgument("draws", "is 0; IR needs at least 1 draw per anchor")
    broken = int((~torch.isfinite(draw_radius)).any(dim=1).sum())
    if broken:
        raise FailedPrecondition(
            f"the checkpoint's predictions are not finite for {broken} of {anchors} anchors, so it "
            "has no IR; check the checkpoint and its input normalisation"
        )
    return linear_quantile(draw_radius.mean(dim=1), quantile)


def different_state_distance(
    rollouts: Float[Tensor, "n horizon dim"],
    partner_rollouts: Float[Tensor, "n horizon dim"],
    weights: Float64[Tensor, "horizon"],
    scale: Float64[Tensor, "n"],
) -> Float64[Tensor, "n"]:
    """D_i, Eq. different-state-distance in the paper, for anchors that have a partner.

    Args:
        rollouts: Clean rollouts of the anchors under their own actions.
        partner_rollouts: Rollouts from each partner's history under the *anchor's* actions.
        weights: Horizon weights, the same as for IR.
        scale: Clean-motion scale s_i of the anchors.

    Returns:
        Distances in units of clean one-step motion.

    Raises:
        FailedPrecondition: A distance is not finite.
    """
    distance = acpc(step_distances(rollouts, partner_rollouts), weights) / (scale + EPS_NORM)
    if not torch.isfinite(distance).all():
        raise FailedPrecondition(
            "the checkpoint's predictions are not finite for a tested different-state pair, so it "
            "has no SR; check the checkpoint and its input normalisation"
        )
    return distance


def check_eligible(eligible: int, anchors: int) -> None:
    """Refuses anchors by which no SR can be measured.

    Args:
        eligible: Anchors that have a partner.
        anchors: Anchors n.

    Raises:
        FailedPrecondition: No anchor is eligible.
    """
    if eligible == 0:
        raise FailedPrecondition(
            f"none of the {anchors} anchors has a nearby anchor with another state label, so "
            "SR is undefined; use more anchors or a label rule that splits them"
        )


def separation_rate(distance: Float64[Tensor, "n"], ir_raw: float, margin: float) -> float:
    """SR, Eq. sr in the paper: the fraction of eligible anchors with D_i > IR_raw + delta.

    Args:
        distance: D_i of :func:`different_state_distance`; NaN where the anchor has no partner.
        ir_raw: Raw IR of the same checkpoint.
        margin: delta, finite and not negative; the paper's protocol has 0.10.

    Raises:
        InvalidArgument: A bad margin.
        FailedPrecondition: No anchor is eligible.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise InvalidArgument("margin", f"is {margin}; give a finite value of at least 0")
    eligible = distance[~distance.isnan()]
    check_eligible(len(eligible), len(distance))
    return int((eligible > ir_raw + margin).sum()) / len(eligible)


def median_latent_distance(latents: Float[Tensor, "n dim"], check: Check = go_on) -> float:
    """Median distance between the latents of different anchors; near zero means collapse.

    Args:
        latents: Clean endpoint embeddings.
        check: Called between blocks of work; may raise to end it.

    Raises:
        InvalidArgument: Fewer than 2 anchors, or a latent that is not finite.
    """
    return off_diagonal_quantile(latents, 0.5, "latents", check)


def relative_ir(ir_raw: float, reference_ir_raw: float) -> float:
    """Relative IR, Eq. ir-relative in the paper: raw IR over the unaugmented reference's.

    Raises:
        FailedPrecondition: The reference's raw IR is zero or not finite.
    """
    if not (math.isfinite(reference_ir_raw) and reference_ir_raw > 0):
        raise FailedPrecondition(
            f"the reference checkpoint has raw IR {reference_ir_raw}, so relative IR is undefined; "
            "use an unaugmented checkpoint that reacts to this visual shift"
        )
    return ir_raw / reference_ir_raw


def check_thresholds(t_ir: float, t_sr: float) -> None:
    """Refuses thresholds no checkpoint can be judged by.

    Raises:
        InvalidArgument: t_IR is not finite and above 0, or t_SR is not in (0, 1].
    """
    if not (math.isfinite(t_ir) and t_ir > 0):
        raise InvalidArgument("thresholds.ir", f"is {t_ir}; give a finite value above 0")
    if not 0 < t_sr <= 1:
        raise InvalidArgument("thresholds.sr", f"is {t_sr}; give a value in (0, 1]")


def screen_score(ir_relative: float, sr: float, t_ir: float, t_sr: float) -> float:
    """S, Eq. ir-sr-score in the paper, for thresholds that pass :func:`check_thresholds`.

    Nonnegative exactly when ``ir_relative <= t_ir`` and ``sr >= t_sr``, in float64 too: a
    difference of two float64 numbers has the sign of the exact one, and neither division can round
    it to zero, because differences near a threshold above 1 are far from underflow.
    """
    return min(
        (t_ir - ir_relative) / (abs(t_ir) + EPS_SCORE),
        (sr - t_sr) / (abs(t_sr) + EPS_SCORE),
    )


def delta_score(
    ir_relative: float, sr: float, reference_sr: float, t_ir: float, t_sr: float
) -> float:
    """Delta S = S(theta_1; theta_0) - S(theta_0; theta_0), Sec. Checkpoint Screening in the paper.

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
    """Applies the checkpoint screen of the paper (Sec. Checkpoint Screening).

    The reference is the unaugmented checkpoint of the same task, run and family, measured under the
    same visual shift. Without it relative IR is unknown: a failed SR still fails the screen, a
    passed one decides nothing.

    Args:
        ir_raw: Raw IR of the checkpoint under test.
        sr: Its SR.
        t_ir: Largest relative IR that passes, finite and above 0.
        t_sr: Smallest SR that passes, in (0, 1].
        reference_ir_raw: Raw IR of the reference.
        reference_sr: SR of the reference; given together with its raw IR.

    Raises:
        InvalidArgument: A threshold or a measurement outside its range, or half a reference.
        FailedPrecondition: As :func:`relative_ir`.
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
        t_ir=t_ir,
        t_sr=t_sr,
        summary=_summary(sr, ir_relative, t_ir, t_sr),
    )


def _check_fraction(field: str, sr: float) -> None:
    if not 0 <= sr <= 1:
        raise InvalidArgument(field, f"is {sr}; SR is a fraction in [0, 1]")


def _summary(sr: float, ir_relative: float | None, t_ir: float, t_sr: float) -> str:
    """One sentence for a reader who has not read the paper; claims only what the numbers show."""
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
    """Both numbers with the fewest decimals, at least two, that show whether they differ."""
    for decimals in range(2, 18):
        texts = f"{found:.{decimals}f}", f"{wanted:.{decimals}f}"
        if texts[0] != texts[1] or found == wanted:
            return texts
    return repr(found), repr(wanted)
