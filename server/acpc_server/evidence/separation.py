"""The separation rate as a proportion of pairs that share partners and trajectories."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from acpc_server.evidence.estimates import Proportion
from acpc_server.evidence.sample import AnchorSample


def separation(sample: AnchorSample, group: Int64[np.ndarray, "n"], threshold: float) -> Proportion:
    """SR at a threshold, with the number of independent pairs that its variance is worth."""
    pairs = np.flatnonzero(sample.eligible)
    separated = (sample.distance[pairs] > threshold).astype(np.float64)
    share = float(separated.mean())
    ends = np.stack([group[pairs], group[sample.partner[pairs]]])
    variance = dyadic_variance(separated - share, ends) / len(pairs) ** 2
    trials = share * (1 - share) / variance if variance > 0 else float(len(pairs))
    return Proportion(share, min(trials, float(len(pairs))))


def dyadic_variance(
    deviations: Float64[np.ndarray, "pairs"], ends: Int64[np.ndarray, "2 pairs"]
) -> float:
    """Variance of the sum over pairs, of which those that share an end depend on each other.

    The dyadic cluster-robust variance (Aronow, Samii and Assenova 2015): products of the deviations
    of all pairs of pairs with a trajectory in common.
    """
    size = int(ends.max()) + 1
    first, second = ends.min(axis=0), ends.max(axis=0)
    crossing = first != second
    by_end = np.bincount(first, deviations, size)
    by_end += np.bincount(second[crossing], deviations[crossing], size)
    keys, both = np.unique(first[crossing] * size + second[crossing], return_inverse=True)
    twice = np.bincount(both, deviations[crossing], len(keys))
    return float((by_end**2).sum() - (twice**2).sum())
