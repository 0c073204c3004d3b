"""Estimates with one-sided bounds at any level, and p-values that are those bounds inverted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from acpc.contract import Interval
from jaxtyping import Float64
from scipy import stats


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

    def p_at_most(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the upper end is at most ``threshold``."""

    def p_at_least(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the lower end is at least ``threshold``."""


def interval(estimate: Estimate, confidence: float) -> Interval:
    """Both ends, with the method's name."""
    alpha = 1 - confidence
    return Interval(estimate.lower(alpha), estimate.upper(alpha), estimate.method)


@dataclass(frozen=True)
class Resampled:
    """An estimate whose bounds are order statistics of its resamples, in ascending order."""

    point: float
    ordered: Float64[np.ndarray, "resamples"]
    method: str

    def _rank(self, alpha: float) -> int:
        return math.floor(alpha / 2 * (len(self.ordered) + 1))

    def lower(self, alpha: float) -> float:
        """The resample of rank alpha / 2."""
        rank = self._rank(alpha)
        return float(self.ordered[rank - 1]) if rank else -math.inf

    def upper(self, alpha: float) -> float:
        """The resample of rank 1 - alpha / 2."""
        rank = self._rank(alpha)
        return float(self.ordered[-rank]) if rank else math.inf

    def p_at_most(self, threshold: float) -> float:
        """Twice the share of resamples above, these counted with one more."""
        above = len(self.ordered) - int(np.searchsorted(self.ordered, threshold, "right"))
        return min(1.0, 2 * (1 + above) / (1 + len(self.ordered)))

    def p_at_least(self, threshold: float) -> float:
        """Twice the share of resamples below, these counted with one more."""
        below = int(np.searchsorted(self.ordered, threshold, "left"))
        return min(1.0, 2 * (1 + below) / (1 + len(self.ordered)))


@dataclass(frozen=True)
class Proportion:
    """A share of ``trials``, by exact binomial bounds (Clopper and Pearson 1934).

    The trials may be fewer than were counted, where those depend on each other (Korn and Graubard
    1998). Where all agree, the upper bound is 1 at any level, and the lower one has all of it.
    """

    point: float
    trials: float
    method: str = "exact binomial, effective sample size"

    @property
    def _tails(self) -> float:
        return 1.0 if self.point == 1 else 2.0

    def lower(self, alpha: float) -> float:
        """The share at which so many successes have the probability of the tail."""
        hits = self.point * self.trials
        if hits == 0:
            return 0.0
        return float(stats.beta.ppf(alpha / self._tails, hits, self.trials - hits + 1))

    def upper(self, alpha: float) -> float:
        """The share at which so few successes have the probability of the tail."""
        hits = self.point * self.trials
        if self.point == 1:
            return 1.0
        return float(stats.beta.isf(alpha / 2, hits + 1, self.trials - hits))

    def p_at_least(self, threshold: float) -> float:
        """Inverts :meth:`lower`."""
        hits = self.point * self.trials
        if hits == 0:
            return 1.0
        tail = float(stats.beta.cdf(threshold, hits, self.trials - hits + 1))
        return min(1.0, self._tails * tail)

    def p_at_most(self, threshold: float) -> float:
        """Inverts :meth:`upper`."""
        hits = self.point * self.trials
        if self.point == 1:
            return 1.0
        return min(1.0, 2 * float(stats.beta.sf(threshold, hits + 1, self.trials - hits)))
