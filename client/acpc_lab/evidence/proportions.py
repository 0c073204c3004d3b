"""Intervals of a proportion."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval (1927) of the probability of a success, without correction."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2)
    half = z * spread / (1 + z * z / trials)
    low = 0.0 if successes == 0 else centre - half
    return low, 1.0 if successes == trials else centre + half
