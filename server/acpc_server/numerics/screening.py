"""Checkpoint-level IR, SR, relative IR, the screen score and the verdict. All in float64."""

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.numerics.consistency import acpc, step_distances
from acpc_server.numerics.pairing import off_diagonal_quantile
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
class Measurement:
    """IR and SR of one checkpoint under one visual shift.

    Attributes:
        ir_raw: Raw IR, in units of clean one-step motion; finite, at least 0.
        sr: Fraction of tested different-state pairs that stay separated.

    Raises:
        InvalidArgument: A value outside its range.
    """

    ir_raw: float
    sr: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ir_raw) and self.ir_raw >= 0):
            raise InvalidArgument("ir_raw", f"is {self.ir_raw}; raw IR is finite and at least 0")
        if not 0 <= self.sr <= 1:
            raise InvalidArgument("sr", f"is {self.sr}; SR is a fraction in [0, 1]")


@dataclass(frozen=True)
class ScreenThresholds:
    """Largest relative IR and smallest SR that pass.

    Attributes:
        ir: t_IR, finite and above 0.
        sr: t_SR, in (0, 1].

    Raises:
        InvalidArgument: A threshold outside its range.
    """

    ir: float
    sr: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ir) and self.ir > 0):
            raise InvalidArgument("thresholds.ir", f"is {self.ir}; give a finite value above 0")
        if not 0 < self.sr <= 1:
            raise InvalidArgument("thresholds.sr", f"is {self.sr}; give a value in (0, 1]")


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


def motion_scale(
    observed: Float[Tensor, "n frames dim"],
) -> Float64[Tensor, "n"]:
    """Clean-motion scale s_i, Eq. clean-transition-scale in the paper.

    Args:
        observed: Projected embeddings u_0..u_H of the last history frame and the H observed clean
            frames after it, (n, H + 1, dim).

    Returns:
        Median l2 displacement over the H transitions, in latent units.

    Raises:
        InvalidArgument: Fewer than two frames.
    """
    if observed.shape[1] < 2:
        raise InvalidArgument(
            "observed", f"has {observed.shape[1]} frames per anchor; motion needs at least 2"
        )
    return median(step_distances(observed[:, :-1], observed[:, 1:]))


def normalised_radius(
    pair_acpc: Float64[Tensor, "n draws"], scale: Float64[Tensor, "n"]
) -> Float64[Tensor, "n draws"]:
    """R_i^(m) = ACPC / (s_i + 1e-8), Eq. normalized-same-state-radius in the paper."""
    return pair_acpc / (scale[:, None] + EPS_NORM)


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
    partner: Int64[Tensor, "n"],
) -> Float64[Tensor, "n"]:
    """D_i, Eq. different-state-distance in the paper.

    Args:
        rollouts: Clean rollouts of the anchors under their own actions.
        partner_rollouts: Rollouts from each partner's history under the *anchor's* actions; rows of
            skipped anchors are ignored.
        weights: Horizon weights, the same as for IR.
        scale: Clean-motion scale s_i of the anchors.
        partner: Index of the partner, -1 where skipped.

    Returns:
        Distances in units of clean one-step motion; NaN where the anchor is skipped.

    Raises:
        FailedPrecondition: The distance of an eligible anchor is not finite.
    """
    distance = acpc(step_distances(rollouts, partner_rollouts), weights) / (scale + EPS_NORM)
    eligible = (partner >= 0).to(distance.device)
    if not torch.isfinite(distance[eligible]).all():
        raise FailedPrecondition(
            "the checkpoint's predictions are not finite for a tested different-state pair, so it "
            "has no SR; check the checkpoint and its input normalisation"
        )
    return distance.masked_fill(~eligible, math.nan)


def separation_rate(distance: Float64[Tensor, "n"], ir_raw: float, margin: float) -> float:
    """SR, Eq. sr in the paper: the fraction of eligible anchors with D_i > IR_raw + delta.

    Args:
        distance: D_i of :func:`different_state_distance`; NaN where skipped.
        ir_raw: Raw IR of the same checkpoint.
        margin: delta, finite and not negative; the paper's protocol has 0.10.

    Raises:
        InvalidArgument: A bad margin.
        FailedPrecondition: No anchor is eligible.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise InvalidArgument("margin", f"is {margin}; give a finite value of at least 0")
    eligible = distance[~distance.isnan()]
    if len(eligible) == 0:
        raise FailedPrecondition(
            f"none of the {len(distance)} anchors has a nearby anchor with another state label, so "
            "SR is undefined; use more anchors or a label rule that splits them"
        )
    return int((eligible > ir_raw + margin).sum()) / len(eligible)


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


def screen_score(ir_relative: float, sr: float, thresholds: ScreenThresholds) -> float:
    """S, Eq. ir-sr-score in the paper.

    Nonnegative exactly when ``ir_relative <= t_IR`` and ``sr >= t_SR``, in float64 too: a
    difference of two float64 numbers has the sign of the exact one, and neither division can round
    it to zero, because differences near a threshold above 1 are far from underflow.
    """
    return min(
        (thresholds.ir - ir_relative) / (abs(thresholds.ir) + EPS_SCORE),
        (sr - thresholds.sr) / (abs(thresholds.sr) + EPS_SCORE),
    )


def delta_score(
    checkpoint: Measurement, reference: Measurement, thresholds: ScreenThresholds
) -> float:
    """Delta S = S(theta_1; theta_0) - S(theta_0; theta_0), Sec. Checkpoint Screening in the paper.

    Raises:
        FailedPrecondition: As :func:`relative_ir`.
    """
    ir_relative = relative_ir(checkpoint.ir_raw, reference.ir_raw)
    own = relative_ir(reference.ir_raw, reference.ir_raw)
    return screen_score(ir_relative, checkpoint.sr, thresholds) - screen_score(
        own, reference.sr, thresholds
    )


def screen(
    checkpoint: Measurement, thresholds: ScreenThresholds, reference: Measurement | None = None
) -> Verdict:
    """Applies the checkpoint screen of the paper (Sec. Checkpoint Screening).

    Args:
        checkpoint: The checkpoint under test.
        thresholds: t_IR and t_SR.
        reference: The unaugmented checkpoint of the same task, run and family. Without it relative
            IR is unknown: a failed SR still fails the screen, a passed one decides nothing.

    Raises:
        FailedPrecondition: As :func:`relative_ir`.
    """
    sr_passed = checkpoint.sr >= thresholds.sr
    if reference is None:
        ir_relative = score = change = ir_passed = None
        outcome = Outcome.INCONCLUSIVE if sr_passed else Outcome.FAILED
    else:
        ir_relative = relative_ir(checkpoint.ir_raw, reference.ir_raw)
        score = screen_score(ir_relative, checkpoint.sr, thresholds)
        change = delta_score(checkpoint, reference, thresholds)
        ir_passed = ir_relative <= thresholds.ir
        outcome = Outcome.PASSED if ir_passed and sr_passed else Outcome.FAILED
    return Verdict(
        outcome=outcome,
        ir_relative=ir_relative,
        score=score,
        delta_score=change,
        ir_passed=ir_passed,
        sr_passed=sr_passed,
        t_ir=thresholds.ir,
        t_sr=thresholds.sr,
        summary=_summary(checkpoint.sr, ir_relative, thresholds),
    )


def median_latent_distance(latents: Float[Tensor, "n dim"]) -> float:
    """Median distance between the latents of different anchors; near zero means collapse.

    Raises:
        InvalidArgument: Fewer than 2 anchors, or a latent that is not finite.
    """
    return off_diagonal_quantile(latents, 0.5, "latents")


def _summary(sr: float, ir_relative: float | None, thresholds: ScreenThresholds) -> str:
    """One sentence for a reader who has not read the paper; claims only what the numbers show."""
    found, wanted = _tell_apart(100 * sr, 100 * thresholds.sr)
    separated = f"{found} % of the tested different-state pairs stay separated"
    sr_text = f"{separated} (needs at least {wanted} %)"
    sr_passed = sr >= thresholds.sr
    if ir_relative is None:
        if sr_passed:
            return (
                f"Inconclusive: SR passes, {sr_text}, but relative IR is unknown without the "
                "unaugmented reference checkpoint; name it to get a verdict."
            )
        return f"Fails on SR: only {sr_text}; a reference checkpoint could not change that."
    found, wanted = _tell_apart(ir_relative, thresholds.ir)
    ir_text = f"{found} times the reference's (needs at most {wanted})"
    if ir_relative > thresholds.ir:
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
