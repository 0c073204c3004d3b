"""The verdict that bounds support, how sure it is, and how many anchors would decide it."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from acpc.contract import Doubt, Interval, Outcome, Thresholds
from acpc.evidence import Estimate, Proportion, Resampled

from acpc_server.evidence.numbers import Numbers
from acpc_server.numerics import verdict

DERIVED = "from the intervals of relative IR and SR"
_ENDLESS = 10**9


class ConfidentVerdict:
    """Compares the bounds of relative IR and SR with both thresholds, at 1 - ``alpha``."""

    def __init__(self, numbers: Numbers, thresholds: Thresholds, alpha: float) -> None:
        self._ratio, self._sr = numbers.ir_relative, numbers.sr
        self._reference_sr = numbers.reference_sr
        self._t_ir, self._t_sr, self._alpha = thresholds.ir, thresholds.sr, alpha

    def outcome(self) -> tuple[Outcome, Doubt]:
        """Return the confident outcome, and what leaves it undecided."""
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
        """Return the larger p-value: both requirements must be shown (intersection-union)."""
        if self._ratio is None:
            return 1.0
        return max(self._ratio.p_at_most(self._t_ir), self._sr.p_at_least(self._t_sr))

    def p_failed(self) -> float:
        """Return the smaller p-value, each twice that of one side: either suffices (Bonferroni)."""
        missed = self._sr.p_below(self._t_sr)
        return missed if self._ratio is None else min(missed, self._ratio.p_above(self._t_ir))

    def point(self) -> float:
        """Return S of the numbers themselves."""
        return self._score(lambda estimate: estimate.point, lambda estimate: estimate.point)

    def score(self) -> Interval | None:
        """Return the interval of S: as good as both requirements at one of their ends."""
        if self._ratio is None:
            return None
        alpha = self._alpha
        lower = self._score(lambda ir: ir.upper(alpha), lambda sr: sr.lower(alpha))
        upper = self._score(lambda ir: ir.lower(alpha), lambda sr: sr.upper(alpha))
        return Interval(lower, upper, DERIVED)

    def _score(self, ir: Callable[[Estimate], float], sr: Callable[[Estimate], float]) -> float:
        assert self._ratio is not None  # noqa: S101 - there is no S without a reference
        return verdict.screen_score(ir(self._ratio), sr(self._sr), self._t_ir, self._t_sr)

    def delta_score(self) -> Interval | None:
        """Return the interval of delta S, from those of S and the reference (Zou, Donner 2008)."""
        score, reference = self.score(), self._reference_sr
        if score is None or reference is None:
            return None
        low, at, high = (
            verdict.screen_score(1.0, sr, self._t_ir, self._t_sr)
            for sr in (reference.lower(self._alpha), reference.point, reference.upper(self._alpha))
        )
        point = self.point()
        below, above = (
            np.hypot(point - score.lower, high - at),
            np.hypot(score.upper - point, at - low),
        )
        return Interval(point - at - float(below), point - at + float(above), DERIVED)

    def anchors_to_decide(self, anchors: int) -> int | None:
        """Return anchors in all at which the bounds would probably clear the thresholds."""
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
        if wanted * anchors >= _ENDLESS:
            return None
        return max(anchors + 1, math.ceil(wanted * anchors))


def _growth_of_ratio(ratio: Resampled, threshold: float, alpha: float) -> float:
    """Return how many times more anchors bring the bound to the threshold: widths go as a root."""
    passes = ratio.point <= threshold
    bound = ratio.upper(alpha) if passes else ratio.lower(alpha)
    reach = abs(bound - ratio.point) if bound else np.inf
    gap = abs(threshold - ratio.point)
    return max(1.0, float((reach / gap) ** 2)) if gap else np.inf


def _growth_of_share(sr: Proportion, threshold: float, alpha: float) -> float:
    """Return how many times more anchors would decide SR, by its exact bounds."""
    if sr.point == threshold:
        return np.inf

    def cleared(times: float) -> bool:
        grown = replace(sr, trials=sr.trials * times)
        if sr.point > threshold:
            return grown.lower(alpha) >= threshold
        return grown.upper(alpha) < threshold

    low = high = 1.0
    while not cleared(high) and high < _ENDLESS:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if cleared(middle) else (middle, high)
    return high
