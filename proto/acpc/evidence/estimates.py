"""Estimates with one-sided bounds at any level, and p-values that are those bounds inverted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy import special

from acpc.contract import Interval


def allowance(groups: float, confidence: float) -> float:
    """By how much few groups widen a squared interval: Student's t over the normal, 1 at least."""
    tail = (1 - confidence) / 2
    wide, narrow = special.stdtrit(max(1.0, groups - 1), tail), special.ndtri(tail)
    return max(1.0, float(wide / narrow) ** 2)


@dataclass(frozen=True)
class Resampled:
    """A number whose bounds are order statistics of its resamples, which ascend.

    ``least``, which it never falls below, and ``most``, which it never exceeds, are its ends where
    there are no others.
    """

    point: float
    low: Float64[np.ndarray, "resamples"]  # its lower ends are read off these
    high: Float64[np.ndarray, "resamples"]
    method: str  # how they are computed, in words
    least: float = 0.0
    most: float = math.inf
    one_sided: bool = False  # all error is below, as of a number that is ``most`` for sure

    @property
    def _below(self) -> float:
        return 1.0 if self.one_sided else 0.5

    def lower(self, alpha: float) -> float:
        """Lower end of the interval that misses the number with probability ``alpha``."""
        rank = math.floor(self._below * alpha * (len(self.low) + 1))
        return min(self.point, float(self.low[rank - 1])) if rank else self.least

    def upper(self, alpha: float) -> float:
        """Its upper end."""
        rank = math.floor(alpha / 2 * (len(self.high) + 1))
        return max(self.point, float(self.high[-rank])) if rank else self.most

    def interval(self, confidence: float) -> Interval:
        """Both ends, with the method's name."""
        return self.at(1 - confidence)

    def at(self, alpha: float) -> Interval:
        """The interval that misses the number with probability ``alpha``."""
        return Interval(self.lower(alpha), self.upper(alpha), self.method)

    def p_at_most(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the upper end is at most ``threshold``."""
        if self.point > threshold:
            return 1.0
        return self._p(len(self.high) - int(np.searchsorted(self.high, threshold, "right")), 0.5)

    def p_below(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the upper end is below ``threshold``."""
        if self.point >= threshold:
            return 1.0
        return self._p(len(self.high) - int(np.searchsorted(self.high, threshold)), 0.5)

    def p_above(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the lower end is above ``threshold``."""
        if self.point <= threshold:
            return 1.0
        return self._p(int(np.searchsorted(self.low, threshold, "right")), self._below)

    def p_at_least(self, threshold: float) -> float:
        """The smallest ``alpha`` at which the lower end is at least ``threshold``."""
        if self.point < threshold:
            return 1.0
        return self._p(int(np.searchsorted(self.low, threshold)), self._below)

    def _p(self, beyond: int, tail: float) -> float:
        return min(1.0, (1 + beyond) / (1 + len(self.low)) / tail)
