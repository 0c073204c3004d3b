"""Estimates with one-sided bounds at any level, and p-values that are those bounds inverted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from acpc.contract import Interval
from jaxtyping import Float64
from scipy import special


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
class Resampled:
    """A number above 0 whose bounds are order statistics of its resamples, in ascending order."""

    point: float
    ordered: Float64[np.ndarray, "resamples"]
    method: str

    def _rank(self, alpha: float) -> int:
        return math.floor(alpha / 2 * (len(self.ordered) + 1))

    def lower(self, alpha: float) -> float:
        """The resample of rank alpha / 2."""
        rank = self._rank(alpha)
        return min(self.point, float(self.ordered[rank - 1])) if rank else 0.0

    def upper(self, alpha: float) -> float:
        """The resample of rank 1 - alpha / 2."""
        rank = self._rank(alpha)
        return max(self.point, float(self.ordered[-rank])) if rank else math.inf

    def p_at_most(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the upper end is at most ``threshold``."""
        if self.point > threshold:
            return 1.0
        above = len(self.ordered) - int(np.searchsorted(self.ordered, threshold, "right"))
        return min(1.0, 2 * (1 + above) / (1 + len(self.ordered)))

    def p_above(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the lower end is above ``threshold``."""
        if self.point <= threshold:
            return 1.0
        below = int(np.searchsorted(self.ordered, threshold, "right"))
        return min(1.0, 2 * (1 + below) / (1 + len(self.ordered)))


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
        if self.quantile in (0, 1):
            rank = self.quantile * len(self.ordered) + (probability > 0.5)
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
        return min(self.point, float(special.betaincinv(*self._beta(False), alpha / self._tails)))

    def upper(self, alpha: float) -> float:
        """The share at which so few successes have the probability of the tail."""
        if self.point == 1:
            return 1.0
        return max(self.point, float(special.betaincinv(*self._beta(True), 1 - alpha / 2)))

    def p_at_least(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the lower end is at least ``threshold``."""
        if self.point < threshold or self.point == 0:
            return 1.0
        return min(1.0, self._tails * float(special.betainc(*self._beta(False), threshold)))

    def p_below(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the upper end is below ``threshold``."""
        if self.point >= threshold:
            return 1.0
        return min(1.0, 2 * float(special.betaincc(*self._beta(True), threshold)))
