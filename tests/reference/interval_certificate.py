"""Certificates in wider floating point with a proven error: the judge of very many pools at once.

With the significand of ``numpy.longdouble`` (64 bits on x86) a squared distance over d coordinates
has a relative error below (d + 3) u, its root half of that and one u more, and b = r (p + q) twice
that of a root and three u; all are far below E = (d + 8) eps. So C - b, C + b and the margin, a
difference of two of them, are known to within 8 E times the largest C + b of the pool. Its exponent
reaches 2^-16445, so that no square of a float64 underflows. Where the type is no wider than float64
the error is infinite, and every pool is left to the exact judge.
"""

from dataclasses import dataclass

import numpy as np
from acpc.arrays import NDArray

Array = NDArray[np.float64]
Wide = NDArray[np.longdouble]
EPS = np.finfo(np.longdouble).eps


@dataclass(frozen=True)
class JudgedBatch:
    """Pools (n, J, d) under views (n, views, J, d).

    Attributes:
        bounds: b_j, (n, views, J).
        error: How far ``bounds`` and margins may be off, (n, views).
        largest: Largest C + b of the pool, (n, views).
    """

    clean: Wide
    bounds: Wide
    error: Wide
    largest: Wide

    def margins(self, elites: NDArray[np.int64]) -> Wide:
        """min(C_j - C_i - b_j - b_i) for elite sets (n, k), to within ``error``; (n, views)."""
        chosen = np.zeros(self.clean.shape, bool)
        np.put_along_axis(chosen, elites, True, axis=1)
        chosen = chosen[:, None]  # (n, 1, J)
        costs = self.clean[:, None]
        lower = np.where(chosen, np.inf, costs - self.bounds).min(axis=-1)
        return lower - np.where(chosen, costs + self.bounds, -np.inf).max(axis=-1)


def judge(clean: Array, perturbed: Array, goal: Array) -> JudgedBatch:
    """Bounds of every pool and view."""
    x, y, g = (part.astype(np.longdouble) for part in (clean, perturbed, goal))
    costs = ((x - g[:, None]) ** 2).sum(axis=-1)  # (n, J)
    p, q = np.sqrt(costs)[:, None], np.sqrt(((y - g[:, None, None]) ** 2).sum(axis=-1))
    bounds = np.sqrt(((y - x[:, None]) ** 2).sum(axis=-1)) * (p + q)  # (n, views, J)
    largest = (costs[:, None] + bounds).max(axis=-1)
    relative = 8 * (clean.shape[-1] + 8) * EPS
    wide = np.finfo(np.float64).eps / 1024 >= EPS
    return JudgedBatch(costs, bounds, largest * relative if wide else largest * np.inf, largest)
