"""How much pairs of anchors that share trajectories depend on each other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64


def design_effect(hits: np.ndarray, ends: Int64[np.ndarray, "2 pairs"]) -> float:
    """Variance of a share over that of as many independent pairs; 0 where all agree."""
    share = float(hits.mean())
    if share in (0, 1):
        return 0.0
    return dyadic_variance(hits - share, ends) / (len(hits) * share * (1 - share))


def dyadic_variance(
    deviations: Float64[np.ndarray, "pairs"], ends: Int64[np.ndarray, "2 pairs"]
) -> float:
    """Variance of the sum over pairs, of which those that share an end depend on each other.

    The dyadic cluster-robust variance (Aronow, Samii and Assenova 2015): products of the deviations
    of all pairs of pairs that have a trajectory in common.
    """
    size = int(ends.max()) + 1
    first, second = ends.min(axis=0), ends.max(axis=0)
    crossing = first != second
    by_end = np.bincount(first, deviations, size)
    by_end += np.bincount(second[crossing], deviations[crossing], size)
    keys, both = np.unique(first[crossing] * size + second[crossing], return_inverse=True)
    twice = np.bincount(both, deviations[crossing], len(keys))
    return float((by_end**2).sum() - (twice**2).sum())
