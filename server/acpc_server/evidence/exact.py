"""Exact bounds of what was drawn by itself: of a finite population, or of endless draws.

Those of a population are given as their ends at the levels of so many resamples, so that one rule
reads them all.
"""

from __future__ import annotations

import math

import numpy as np
from acpc.evidence import FEW_OF_ALL
from jaxtyping import Float64
from scipy import special

_ONE_SIDED = 1.645  # standard errors beyond which 5 % lie
_DRAWS_CONFIDENCE = 0.95
# Above the error of scipy's inverse, relative, which is some 1e-14.
_INVERSE_ERROR = 1e-12


def most_uncertified(draws: int, uncertified: int) -> float:
    """Bound the share of all draws that are not certified, from above, with 95 % confidence.

    The exact one-sided bound of Clopper and Pearson (Biometrika 26, 1934) in float64, rounded up:
    the 0.95 quantile of Beta(k + 1, n - k) for ``uncertified`` k of n ``draws``; 1 where k = n.

    It counts draws of one random perturbation with independent keys, on one history and for one
    choice, whose number was fixed beforehand. Views of a perturbation without chance, and views of
    the caller's, are no draws and have no bound. It says nothing of other histories, choices or
    perturbations; nor does a draw that is not certified have to change the choice.
    """
    if not 0 <= uncertified <= draws:
        raise ValueError(f"{uncertified} of {draws} draws")
    if uncertified == draws:
        return 1.0
    quantile = float(special.betaincinv(uncertified + 1, draws - uncertified, _DRAWS_CONFIDENCE))
    return min(1.0, quantile * (1.0 + _INVERSE_ERROR))


def quantile_bounds(
    ordered: Float64[np.ndarray, "n"], quantile: float, windows: int | None, levels: int
) -> tuple[Float64[np.ndarray, "levels"], Float64[np.ndarray, "levels"]]:
    """Order statistics that hold the quantile of all windows: lower ends, and upper ones.

    Those of so many of the sample as are among the windows below the quantile, which is
    hypergeometric; binomial where the windows are many or unknown (None).
    """
    count = len(ordered)
    if windows is None:
        below = above = _binomial(count, quantile)
    else:
        rank = quantile * (windows - 1)
        below = _hypergeometric(windows, math.floor(rank) + 1, count)
        above = _hypergeometric(windows, math.ceil(rank), count)
    level = np.arange(1, levels + 1) / (levels + 1)
    fewer = np.cumsum(below)[:-1]  # P(at most j), j from 0
    more = np.cumsum(above[::-1])[::-1][1:]  # P(at least j), j from 1
    low = np.concatenate([[0.0], ordered])[np.searchsorted(fewer, level, "right")]
    high = np.concatenate([ordered, [np.inf]])[_above(more, level)]
    return low, high


def all_of(
    pairs: int, worth: float, among: int | None, levels: int
) -> Float64[np.ndarray, "levels"]:
    """Lower ends of a share of which all ``pairs`` are; ``among`` so many, None: of endless ones.

    The pairs count as the ``worth`` of so many independent ones.
    """
    level = np.arange(1, levels + 1) / (levels + 1)
    if among is None or among > FEW_OF_ALL * pairs:
        found: np.ndarray = level ** (1 / worth)
        return found
    left = max(0, among - pairs)
    missed = np.arange(left)
    chance = np.cumprod((left - missed) / (left + worth - missed))  # of none, if 1, 2, ... miss
    ends: np.ndarray = 1 - _above(chance, level) / max(1, among)
    return ends


def least_p(pairs: int, among: int | None, share: float) -> float:
    """Chance that none of so many pairs misses where so few are separated that it is ``share``."""
    if among is None or among > FEW_OF_ALL * pairs:
        return share**pairs
    left, missed = max(0, among - pairs), np.arange(math.floor((1 - share) * among) + 1)
    return float(np.prod(np.maximum(0, left - missed) / (left + pairs - missed)))


def reached(distance: Float64[np.ndarray, "pairs"], limit: float, worth: float) -> float:
    """Largest share at or below ``limit`` of distances that spread as these do, all above it.

    The one-sided inequality of Vysochanskij and Petunin (1980), of their logarithms: whatever their
    distribution, if it has one mode. How many deviations away the limit lies is itself uncertain,
    as of ``worth`` normal values: its lower bound at 5 %.
    """
    logs = np.log(distance)
    spread = float(logs.std())
    if not spread or not limit:
        return 0.0
    far = (float(logs.mean()) - math.log(limit)) / spread
    far = max(0.0, far - _ONE_SIDED * math.sqrt((1 + far**2 / 2) / worth))
    return max(4 / 9 / (1 + far**2), 1 / 3 * (4 / (1 + far**2) - 1))


def _above(falling: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Count, for each level, the numbers above it, of some that never rise."""
    found: np.ndarray = len(falling) - np.searchsorted(falling[::-1], level, "right")
    return found


def _binomial(count: int, share: float) -> Float64[np.ndarray, "counts"]:
    hits = np.arange(count + 1)
    logs = _log_choose(count, hits) + special.xlogy(hits, share)
    found: np.ndarray = np.exp(logs + special.xlog1py(count - hits, -share))
    return found


def _hypergeometric(windows: int, below: int, count: int) -> Float64[np.ndarray, "counts"]:
    """Chances of 0, 1, ... of ``below`` special windows in a sample."""
    hits = np.arange(count + 1)
    with np.errstate(invalid="ignore"):
        logs = _log_choose(below, hits) + _log_choose(windows - below, count - hits)
    possible = (hits <= below) & (count - hits <= windows - below)
    found: np.ndarray = np.where(possible, np.exp(logs - _log_choose(windows, count)), 0.0)
    return found


def _log_choose(of: int, take: np.ndarray | int) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        found: np.ndarray = (
            special.gammaln(of + 1)
            - special.gammaln(np.add(take, 1))
            - special.gammaln(of - np.asarray(take) + 1)
        )
    return found
