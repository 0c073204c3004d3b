"""Resamples raw IR over trajectories, the checkpoint and its reference together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, Int64

from acpc.contract import EvidenceOptions

_BLOCK_ENTRIES = 2**20
"""Weights held at once, 8 MiB."""


def resampled_quantiles(
    radii: list[Float64[np.ndarray, "n"]],
    group: Int64[np.ndarray, "n"],
    quantile: float,
    options: EvidenceOptions,
    shape: float,
) -> Float64[np.ndarray, "samples resamples"]:
    """Quantiles of several samples on the same anchors, under the same resamples.

    The Bayesian bootstrap (Rubin 1981) over trajectories: each has a random weight, and one more,
    of average length, lies above every anchor, so that without clusters the quantile is distributed
    as its order statistics are. Where the quantile lies above them all it is infinite.
    """
    orders = [np.argsort(radius, kind="stable") for radius in radii]
    length = len(group) / len(np.unique(group))
    found = np.empty((len(radii), options.resamples))
    for rows, weights in draw_weights(group, options, shape):
        above = weights[:, -1] * length
        for values, radius, order in zip(found, radii, orders, strict=True):
            own = weights[:, group[order]]  # (rows, n)
            values[rows] = _weighted_quantiles(radius[order], own, above, quantile)
    return found


def effective_groups(group: Int64[np.ndarray, "*shape"]) -> float:
    """Number of groups of one size that are worth as much as these (Kish 1965)."""
    sizes = np.bincount(group.ravel()).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def draw_weights(
    group: Int64[np.ndarray, "n"], options: EvidenceOptions, shape: float = 1.0
) -> Iterator[tuple[slice, Float64[np.ndarray, "rows weights"]]]:
    """Weights of the groups and of one more, a block of resamples at a time.

    Gamma distributed; exponential where ``shape`` is 1.
    """
    groups = int(group.max()) + 1
    generator = np.random.default_rng(options.seed)
    size = max(1, _BLOCK_ENTRIES // len(group))
    for start in range(0, options.resamples, size):
        rows = min(size, options.resamples - start)
        yield slice(start, start + rows), generator.standard_gamma(shape, (rows, groups + 1))


def _weighted_quantiles(
    ordered: Float64[np.ndarray, "n"],
    weights: Float64[np.ndarray, "rows n"],
    above: Float64[np.ndarray, "rows"],
    quantile: float,
) -> Float64[np.ndarray, "rows"]:
    """The value at which each row's weights reach the quantile, between two by interpolation."""
    reached = np.cumsum(weights, axis=1)
    wanted = quantile * (reached[:, -1] + above)
    index = np.minimum((reached < wanted[:, None]).sum(axis=1), len(ordered) - 1)
    rows = np.arange(len(index))
    low, step = ordered[np.maximum(index - 1, 0)], weights[rows, index]
    with np.errstate(over="ignore"):
        beyond = np.divide(reached[rows, index] - wanted, step, where=step > 0, out=0 * step)
    part = np.clip(1 - beyond, 0, 1)
    found: np.ndarray = low + part * (ordered[index] - low)
    return np.where(reached[:, -1] < wanted, np.inf, found)
