"""The verdict that bounds support, how sure it is, and how many anchors would decide it."""

import math
from dataclasses import dataclass

from acpc.contract import (
    Doubt,
    Interval,
    Outcome,
    Thresholds,
    confident_outcome,
    delta_interval,
    score_interval,
    screen_score,
)
from acpc.evidence import Resampled
from scipy import optimize, special

from acpc_server.evidence.numbers import Numbers

_ENDLESS = 10**9
_PARTNERS = {True: 1.5, False: 2.0}
"""Partners on the border of a label serve ever more anchors: their number lags behind."""
_SEEDS = 3.29  # standard errors that one seed of 2,000 exceeds


@dataclass(frozen=True)
class ConfidentVerdict:
    """Compares the bounds of relative IR and SR with both thresholds, at 1 - ``alpha``."""

    numbers: Numbers
    limits: Thresholds
    alpha: float
    quantile: float

    @property
    def _ends(self) -> tuple[Interval | None, Interval]:
        ratio, sr = self.numbers.ir_relative, self.numbers.sr
        return None if ratio is None else ratio.at(self.alpha), sr.at(self.alpha)

    def outcome(self) -> tuple[Outcome, Doubt]:
        """Return the confident outcome, and what leaves it undecided."""
        return confident_outcome(*self._ends, self.limits)

    def p_passed(self) -> float:
        """Return the larger p-value: both requirements must be shown (intersection-union)."""
        if self.numbers.ir_relative is None:
            return 1.0
        ratio = self.numbers.ir_relative.p_at_most(self.limits.ir)
        return max(ratio, self.numbers.sr.p_at_least(self.limits.sr))

    def p_failed(self) -> float:
        """Return the smaller p-value, each twice that of one side: either suffices (Bonferroni)."""
        missed, ratio = self.numbers.sr.p_below(self.limits.sr), self.numbers.ir_relative
        return missed if ratio is None else min(missed, ratio.p_above(self.limits.ir))

    def score(self) -> Interval | None:
        """Return the interval of S."""
        return score_interval(*self._ends, self.limits)

    def delta_score(self) -> Interval | None:
        """Return the interval of delta S."""
        score, ratio, own = self.score(), self.numbers.ir_relative, self.numbers.reference_sr
        if score is None or ratio is None or own is None:
            return None
        point = screen_score(ratio.point, self.numbers.sr.point, self.limits.ir, self.limits.sr)
        return delta_interval(score, point, own.at(self.alpha), own.point, self.limits)

    def drawn_to_decide(self) -> int | None:
        """Return windows, or trajectories, in all that would probably clear the thresholds.

        Of a dataset not more than it has: squared widths go as 1/n - 1/N (Cochran 1977).
        """
        if self.outcome()[0] is not Outcome.UNDECIDED:
            return None
        ratio, sr, drawn = self.numbers.ir_relative, self.numbers.sr, self.numbers.count
        growth = [(self._growth_of_share(sr), sr.point >= self.limits.sr)]
        if ratio is not None:
            growth.append((self._growth_of_ratio(ratio), ratio.point <= self.limits.ir))
        failing = [times for times, passes in growth if not passes]
        wanted = drawn * (min(failing) if failing else max(growth)[0])
        if math.isinf(wanted):
            return None
        if windows := self.numbers.windows:
            wanted = 1 / (1 / windows + (1 - drawn / windows) / wanted)
        return None if wanted >= _ENDLESS else max(drawn + 1, math.ceil(wanted - 1e-9))

    @property
    def _growth_to_a_bound(self) -> float:
        wanted = least_drawn(self.quantile, self.alpha, len(self.numbers.sr.low))
        return (wanted or math.inf) / self.numbers.count

    def _growth_of_ratio(self, ratio: Resampled) -> float:
        """Return how many times more anchors bring the bound to the threshold.

        Widths go as a root; where there is no upper end, as wide as the lower one.
        """
        gap, upper = abs(self.limits.ir - ratio.point), ratio.upper(self.alpha)
        if not gap:
            return math.inf
        reach = ratio.point - ratio.lower(self.alpha)
        if ratio.point > self.limits.ir:
            return max(1.0, (reach / gap) ** 2)
        if math.isinf(upper):
            return max(self._growth_to_a_bound, (reach / gap) ** 2)
        return max(1.0, ((upper - ratio.point) / gap) ** 2)

    def _growth_of_share(self, sr: Resampled) -> float:
        """Return how many times more anchors would decide SR, as its bounds are worth trials."""
        point, threshold, alpha = sr.point, self.limits.sr, self.alpha
        if point == threshold:
            return math.inf
        share, limit, bound = point, threshold, sr.lower(alpha)
        if point < threshold:
            share, limit, bound = 1 - point, 1 - threshold, 1 - sr.upper(alpha)
        worth = _trials(share, bound, alpha) if bound else self.numbers.count
        pairs = self.numbers.pairs
        share *= pairs / (pairs + 1)  # as one more that is otherwise would leave it
        if share <= limit:
            return math.inf
        least = self._growth_to_a_bound if point > threshold and not bound else 1.0
        power = _PARTNERS[self.numbers.dataset]
        return max(least, float((_trials(share, limit, alpha) / worth) ** power))


def least_drawn(quantile: float, alpha: float, resamples: int) -> int | None:
    """Return the fewest trajectories that bound a quantile from above; None where none do.

    With fewer, of one size, all may lie below it, or so many resamples say so for some seeds: for
    one of 2,000 at the number returned.
    """
    if quantile in (0, 1):
        return None
    off = _SEEDS / math.sqrt(resamples)  # all below at p: p + off sqrt(p) is half of alpha
    root = (math.sqrt(off**2 + 2 * alpha) - off) / 2
    return math.ceil(2 * math.log(root) / math.log(quantile))


def _trials(share: float, bound: float, alpha: float) -> float:
    """Return the trials at which the lower bound of Clopper and Pearson of a share is this."""
    if not 0 < bound < share:
        return 1.0 if bound <= 0 else math.inf
    tail = alpha / 2 if share < 1 else alpha

    def short(log_trials: float) -> float:
        trials = math.exp(log_trials)
        hits = share * trials
        return float(special.betaincinv(hits, trials - hits + 1, tail)) - bound

    if short(math.log(_ENDLESS)) < 0 or short(0.0) > 0:
        return 1.0 if short(0.0) > 0 else _ENDLESS
    return math.exp(float(optimize.brentq(short, 0.0, math.log(_ENDLESS))))
