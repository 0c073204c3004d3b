"""Weighs a score: intervals of its numbers, and the verdict that these support."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from acpc.contract import (
    Doubt,
    Evidence,
    EvidenceOptions,
    Interval,
    Outcome,
    ScoreProtocol,
    Thresholds,
)

from acpc_server.evidence.estimates import Estimate, Proportion, Resampled, interval
from acpc_server.evidence.resampling import resampled_quantiles
from acpc_server.evidence.sample import AnchorSample, groups
from acpc_server.evidence.separation import separation
from acpc_server.numerics.verdict import screen_score

BOOTSTRAP = "Bayesian bootstrap over trajectories"
DERIVED = "from the intervals of relative IR and SR"
METHOD = f"{BOOTSTRAP}; exact binomial with effective sample size"
MIN_ELIGIBLE = 30
MIN_TRAJECTORIES = 20
_FLOORS_IN_DOUBT = 10
_MOST_ANCHORS = 10**9


def judge(
    checkpoint: AnchorSample,
    reference: AnchorSample | None,
    protocol: ScoreProtocol,
    thresholds: Thresholds,
    options: EvidenceOptions,
) -> Evidence:
    """Intervals of a score's numbers, and the verdict that they support.

    Args:
        checkpoint: What the checkpoint gave on the anchors.
        reference: What the reference gave on the same anchors, the checkpoint's own sample where
            they are one; None without a reference.
        protocol: The quantile of IR and the margin of SR.
        thresholds: Of the screen.
        options: Confidence, resamples and seed.
    """
    group = groups(checkpoint)
    sides = [checkpoint, *([] if reference is None or reference is checkpoint else [reference])]
    resampled = resampled_quantiles(
        [side.radius for side in sides], group, protocol.quantile, options
    )
    points = [float(np.quantile(side.radius, protocol.quantile)) for side in sides]
    irs = [_sorted(point, values) for point, values in zip(points, resampled, strict=True)]
    srs = [
        separation(side, group, point + protocol.margin)
        for side, point in zip(sides, points, strict=True)
    ]
    ratio = None
    if reference is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(resampled[0] / resampled[-1], nan=np.inf, posinf=np.inf)
        ratio = _sorted(points[0] / points[-1], ratios)
    verdict = _Verdict(ratio, srs[0], thresholds, 1 - options.confidence)
    outcome, doubt = verdict.outcome()

    def shown(estimate: Estimate) -> Interval:
        return interval(estimate, options.confidence)

    score = delta = None
    if ratio is not None:
        score = verdict.score()
        delta = _delta(score, verdict.point(), srs[-1], thresholds, options.confidence)
    return Evidence(
        confidence=options.confidence,
        ir_raw=shown(irs[0]),
        reference_ir_raw=None if reference is None else shown(irs[-1]),
        ir_relative=None if ratio is None else shown(ratio),
        sr=shown(srs[0]),
        reference_sr=None if reference is None else shown(srs[-1]),
        score=score,
        delta_score=delta,
        confident_outcome=outcome,
        doubt=doubt,
        anchors_to_decide=verdict.anchors_to_decide(len(checkpoint.radius)),
        trajectories=len(np.unique(checkpoint.trajectory)),
        resamples=options.resamples,
        seed=options.seed,
        p_passed=verdict.p_passed(),
        p_failed=verdict.p_failed(),
        notes=tuple(_notes(checkpoint, points[0])),
    )


def _sorted(point: float, values: np.ndarray) -> Resampled:
    return Resampled(point, np.sort(values), BOOTSTRAP)


class _Verdict:
    """What the bounds of relative IR and SR say against both thresholds, at 1 - ``alpha``."""

    def __init__(
        self, ratio: Resampled | None, sr: Proportion, thresholds: Thresholds, alpha: float
    ) -> None:
        self._ratio, self._sr = ratio, sr
        self._t_ir, self._t_sr, self._alpha = thresholds.ir, thresholds.sr, alpha

    def outcome(self) -> tuple[Outcome, Doubt]:
        """The confident outcome, and what leaves it undecided."""
        alpha, ratio, sr = self._alpha, self._ratio, self._sr
        sr_passed = sr.lower(alpha) >= self._t_sr
        ir_passed = ratio is not None and ratio.upper(alpha) <= self._t_ir
        ir_failed = ratio is not None and ratio.lower(alpha) > self._t_ir
        if ir_failed or sr.upper(alpha) < self._t_sr:
            return Outcome.FAILED, Doubt.NONE
        if sr_passed and (ir_passed or ratio is None):
            return (Outcome.INCONCLUSIVE if ratio is None else Outcome.PASSED), Doubt.NONE
        if ir_passed or ratio is None:
            return Outcome.UNDECIDED, Doubt.SR
        return Outcome.UNDECIDED, Doubt.IR if sr_passed else Doubt.BOTH

    def p_passed(self) -> float:
        """Both requirements have to be shown: the larger p-value (intersection-union)."""
        if self._ratio is None:
            return 1.0
        return max(self._ratio.p_at_most(self._t_ir), self._sr.p_at_least(self._t_sr))

    def p_failed(self) -> float:
        """Either suffices: the smaller p-value, each twice that of one side (Bonferroni)."""
        missed = self._sr.p_at_most(self._t_sr)
        return missed if self._ratio is None else min(missed, self._ratio.p_at_least(self._t_ir))

    def point(self) -> float:
        """S, of the numbers themselves."""
        return self._score(lambda estimate: estimate.point, lambda estimate: estimate.point)

    def score(self) -> Interval:
        """The interval of S: as good as both requirements at one of their ends."""
        alpha = self._alpha
        lower = self._score(lambda ir: ir.upper(alpha), lambda sr: sr.lower(alpha))
        upper = self._score(lambda ir: ir.lower(alpha), lambda sr: sr.upper(alpha))
        return Interval(lower, upper, DERIVED)

    def _score(self, ir: Callable[[Estimate], float], sr: Callable[[Estimate], float]) -> float:
        assert self._ratio is not None  # noqa: S101 - there is no S without a reference
        return screen_score(ir(self._ratio), sr(self._sr), self._t_ir, self._t_sr)

    def anchors_to_decide(self, anchors: int) -> int | None:
        """Anchors in all at which the bounds would probably clear the thresholds."""
        if self.outcome()[0] is not Outcome.UNDECIDED:
            return None
        ratio, sr = self._ratio, self._sr
        growth = [_growth_of_share(sr, self._t_sr, self._alpha)]
        passes = [sr.point >= self._t_sr]
        if ratio is not None:
            growth.append(_growth_of_ratio(ratio, self._t_ir, self._alpha))
            passes.append(ratio.point <= self._t_ir)
        failing = [g for g, passed in zip(growth, passes, strict=True) if not passed]
        wanted = min(failing) if failing else max(growth)
        return round(np.ceil(wanted * anchors)) if wanted * anchors < _MOST_ANCHORS else None


def _growth_of_ratio(ratio: Resampled, threshold: float, alpha: float) -> float:
    """How many times the anchors bring the bound to the threshold: widths go as their root."""
    passes = ratio.point <= threshold
    reach = abs((ratio.upper(alpha) if passes else ratio.lower(alpha)) - ratio.point)
    gap = abs(threshold - ratio.point)
    return max(1.0, float((reach / gap) ** 2)) if gap else np.inf


def _growth_of_share(sr: Proportion, threshold: float, alpha: float) -> float:
    """The same of SR, whose exact bounds are computed for so many trials."""
    if sr.point == threshold:
        return np.inf

    def cleared(times: float) -> bool:
        grown = Proportion(sr.point, sr.trials * times)
        if sr.point > threshold:
            return grown.lower(alpha) >= threshold
        return grown.upper(alpha) < threshold

    low = high = 1.0
    while not cleared(high) and high < _MOST_ANCHORS:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if cleared(middle) else (middle, high)
    return high


def _delta(
    score: Interval, point: float, reference: Proportion, thresholds: Thresholds, confidence: float
) -> Interval:
    """The interval of delta S, from that of S and the reference's own (Zou and Donner 2008)."""

    def own(sr: float) -> float:
        return screen_score(1.0, sr, thresholds.ir, thresholds.sr)

    at, seen = own(reference.point), interval(reference, confidence)
    below, above = at - own(seen.lower), own(seen.upper) - at
    return Interval(
        point - at - float(np.hypot(point - score.lower, above)),
        point - at + float(np.hypot(score.upper - point, below)),
        DERIVED,
    )


def _notes(sample: AnchorSample, ir_raw: float) -> list[str]:
    eligible, found = int(sample.eligible.sum()), len(np.unique(sample.trajectory))
    notes = []
    if eligible < MIN_ELIGIBLE:
        notes.append(
            f"SR rests on {eligible} eligible anchors; with fewer than {MIN_ELIGIBLE} its interval "
            "is wide: give more anchors"
        )
    if found == 1:
        notes.append(
            "all anchors come from one trajectory; the intervals take them for independent and "
            "say nothing of other trajectories"
        )
    elif found < MIN_TRAJECTORIES:
        notes.append(
            f"the anchors come from {found} trajectories; with fewer than {MIN_TRAJECTORIES} the "
            "intervals may be too narrow: draw anchors from more"
        )
    if sample.rounding_floor and ir_raw <= _FLOORS_IN_DOUBT * sample.rounding_floor:
        notes.append("raw IR is near its rounding floor; the intervals leave rounding out")
    return notes
