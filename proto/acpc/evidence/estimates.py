"""Estimates with one-sided bounds at any level, and p-values that are those bounds inverted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float64
from scipy import special

from acpc.contract import Interval

MIN_GROUPS = 4
"""With two or three, resamples miss in a half or a quarter of cases, whatever their spread."""
_BELOW_1 = math.nextafter(1.0, 0.0)


class Estimate(Protocol):
    """A number that is known by a sample."""

    @property
    def point(self) -> float:
        """The number itself."""

    @property
    def method(self) -> str:
        """How its bounds are computed, in words."""

    def lower(self, alpha: float) -> float:
        """Lower end of the interval that misses the number with probability ``alpha``."""

    def upper(self, alpha: float) -> float:
        """Its upper end."""


def interval(estimate: Estimate, confidence: float) -> Interval:
    """Both ends, with the method's name."""
    alpha = 1 - confidence
    return Interval(estimate.lower(alpha), estimate.upper(alpha), estimate.method)


@dataclass(frozen=True)
class FewGroups:
    """Allowance for few independent groups: Student's t in place of the normal distribution.

    What is resampled or counted has its variance multiplied by :attr:`factor`, which is right at
    ``confidence``. At other levels bounds are read off at a level of their own, as the expanded
    percentiles of Hesterberg (2015) are, because t has the heavier tails.

    Attributes:
        groups: Their number, which is the degrees of freedom, plus one.
        trials: The number of groups that bounds without allowance are right for; infinite: normal.
        confidence: At which the factor is right.
    """

    groups: float = math.inf
    trials: float = math.inf
    confidence: float = 0.95

    @property
    def factor(self) -> float:
        """By how much a squared width grows, 1 at least."""
        tail = (1 - self.confidence) / 2
        wide, narrow = (special.stdtrit(df, tail) for df in self._degrees)
        return max(1.0, float(wide / narrow) ** 2)

    @property
    def least(self) -> float:
        """The smallest ``alpha`` at which there are bounds; 1 where so few groups give none."""
        return 0.0 if self.groups >= MIN_GROUPS else 1.0

    def level(self, alpha: float) -> float:
        """The level to read bounds off at, that they may be those of ``alpha``."""
        return self._moved(alpha, *self._degrees, self.factor**-0.5)

    def original(self, level: float) -> float:
        """The ``alpha`` whose level this is."""
        groups, trials = self._degrees
        return self._moved(level, trials, groups, self.factor**0.5)

    @property
    def _degrees(self) -> tuple[float, float]:
        return max(1.0, self.groups - 1), max(1.0, self.trials - 1)

    def _moved(self, level: float, source: float, target: float, times: float) -> float:
        if times == 1 or level >= 1:
            return level
        own = 1 - self.confidence
        moved = 2 * float(special.stdtr(target, times * special.stdtrit(source, level / 2)))
        return min(moved, own) if level <= own else max(moved, own)  # rounding changes no side


@dataclass(frozen=True)
class Resampled:
    """A number above ``least`` whose bounds are order statistics of its resamples, ascending."""

    point: float
    ordered: Float64[np.ndarray, "resamples"]
    method: str
    few: FewGroups = FewGroups()
    least: float = 0.0

    def _rank(self, alpha: float) -> int:
        if alpha < self.few.least:
            return 0
        return math.floor(self.few.level(alpha) / 2 * (len(self.ordered) + 1))

    def _p(self, beyond: int) -> float:
        found = self.few.original(min(1.0, 2 * (1 + beyond) / (1 + len(self.ordered))))
        return max(self.few.least, found)

    def lower(self, alpha: float) -> float:
        """The resample of rank alpha / 2."""
        rank = self._rank(alpha)
        return min(self.point, float(self.ordered[rank - 1])) if rank else self.least

    def upper(self, alpha: float) -> float:
        """The resample of rank 1 - alpha / 2."""
        rank = self._rank(alpha)
        return max(self.point, float(self.ordered[-rank])) if rank else math.inf

    def p_at_most(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the upper end is at most ``threshold``."""
        if self.point > threshold:
            return 1.0
        above = len(self.ordered) - int(np.searchsorted(self.ordered, threshold, "right"))
        return self._p(above)

    def p_above(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the lower end is above ``threshold``."""
        if self.point <= threshold:
            return 1.0
        return self._p(int(np.searchsorted(self.ordered, threshold, "right")))


@dataclass(frozen=True)
class OrderStatistics:
    """A quantile between two order statistics, by the binomial distribution of their ranks.

    Without clusters these bounds need no assumption on the distribution. With clusters the trials
    are as many independent anchors as the share below the quantile is worth (Woodruff 1952).
    """

    point: float
    ordered: Float64[np.ndarray, "n"]
    quantile: float
    trials: float
    method: str = "order statistics, effective sample size"

    def _at(self, probability: float) -> float:
        """The value whose rank so many trials reach; 0 and infinity below and above them all."""
        none_below, all_below = (1 - self.quantile) ** self.trials, self.quantile**self.trials
        if self.quantile in (0, 1):
            rank = self.quantile * len(self.ordered) + (probability > 0.5)
        elif probability < 0.5 and none_below > probability:
            return 0.0
        elif probability > 0.5 and all_below > 1 - probability:
            return math.inf
        else:
            below = float(special.bdtrik(probability, self.trials, self.quantile))
            rank = (below + 1) / (self.trials + 1) * (len(self.ordered) + 1)
        if math.isnan(rank) or rank < 1:
            return 0.0
        if rank > len(self.ordered):
            return math.inf
        return float(np.interp(rank - 1, np.arange(len(self.ordered)), self.ordered))

    def lower(self, alpha: float) -> float:
        """The largest value that is above the quantile with less than the tail's probability."""
        return min(self.point, self._at(alpha / 2))

    def upper(self, alpha: float) -> float:
        """The smallest value that is below it with less."""
        return max(self.point, self._at(1 - alpha / 2))


@dataclass(frozen=True)
class Proportion:
    """A share of so many independent trials, by the beta distribution.

    The trials may be fewer than were counted, where those depend on each other (Korn and Graubard
    1998). Bounds are Jeffreys' (Brown, Cai and DasGupta 2001); exact, those of Clopper and Pearson
    (1934), where trials are few or all agree. Where all do, the upper bound is 1 at any level, and
    the lower one has all of it.
    """

    point: float
    trials: float
    exact: bool
    few: FewGroups = FewGroups()

    @property
    def method(self) -> str:
        """How its bounds are computed, in words."""
        bounds = "exact binomial" if self._exact else "Jeffreys"
        return f"{bounds} bounds, effective sample size"

    @property
    def _exact(self) -> bool:
        return self.exact or self.point in (0, 1)

    @property
    def _tails(self) -> float:
        return 1.0 if self.point == 1 else 2.0

    def _beta(self, upper: bool) -> tuple[float, float]:
        """Parameters of the beta distribution whose quantile is a bound."""
        hits, more = self.point * self.trials, float(upper) if self._exact else 0.5
        return hits + more, self.trials - hits + 1 - more

    def lower(self, alpha: float) -> float:
        """The share at which so many successes have the probability of the tail."""
        if self.point == 0:
            return 0.0
        tail = self.few.level(alpha) / self._tails
        return min(self.point, float(special.betaincinv(*self._beta(False), tail)))

    def upper(self, alpha: float) -> float:
        """The share at which so few successes have the probability of the tail."""
        if self.point == 1:
            return 1.0
        tail = self.few.level(alpha) / 2
        return max(self.point, min(_BELOW_1, float(special.betainccinv(*self._beta(True), tail))))

    def p_at_least(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the lower end is at least ``threshold``."""
        if self.point < threshold or self.point == 0:
            return 1.0
        return self._p(self._tails * float(special.betainc(*self._beta(False), threshold)))

    def p_below(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the upper end is below ``threshold``."""
        if self.point >= threshold:
            return 1.0
        return self._p(2 * float(special.betaincc(*self._beta(True), threshold)))

    def _p(self, level: float) -> float:
        return self.few.original(min(1.0, level))
