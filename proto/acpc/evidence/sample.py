"""What one checkpoint gave on its anchors, and how much these, and pairs of them, hang together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from acpc.contract import Population


@dataclass(frozen=True)
class CheckpointSample:
    """One checkpoint's measurements on n anchors; None: not known."""

    radius: Float64[np.ndarray, "n"]  # normalised, mean over draws
    distance: Float64[np.ndarray, "n"]  # different-state distance D_i; NaN where skipped
    partner: Int64[np.ndarray, "n"]  # its index; -1 where skipped
    trajectory: Int64[np.ndarray, "n"]  # anchors of one belong together
    rounding_floor: float | None = None  # raw IR below which rounding matters
    windows: int | None = None  # that the anchors are a simple random sample of
    shared_draws: int = 0  # draws that all anchors share; 0: each has its own, or there is one

    @property
    def eligible(self) -> Bool[np.ndarray, "n"]:
        """Anchors that have a partner."""
        return self.partner >= 0


def groups(sample: CheckpointSample, population: Population) -> Int64[np.ndarray, "n"]:
    """Number of what each anchor is an independent draw of, from 0, whatever their order.

    Of a dataset each anchor is drawn by itself; otherwise each trajectory.
    """
    if population is Population.DATASET:
        return np.arange(len(sample.radius))
    return np.asarray(np.unique(sample.trajectory, return_inverse=True)[1], np.int64)


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
