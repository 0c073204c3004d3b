"""Resamples raw IR over trajectories, the checkpoint and its reference together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from acpc.contract import EvidenceOptions
from jaxtyping import Float64, Int64

_BLOCK_ENTRIES = 2**20
"""Weights held at once, 8 MiB."""


def resampled_quantiles(
    radii: list[Float64[np.ndarray, "n"]],
    group: Int64[np.ndarray, "n"],
    quantile: float,
    options: EvidenceOptions,
) -> Float64[np.ndarray, "samples resamples"]:
    """Quantiles of several samples on the same anchors, under the same resamples.

    The Bayesian bootstrap (Rubin 1981): each trajectory has a weight that is drawn from the
    exponential distribution, and one more weight lies above every anchor. Without clusters the
    quantile's distribution is then that of the order-statistic interval, exactly.
    """
    orders = [np.argsort(radius, kind="stable") for radius in radii]
    ordered = [radius[order] for radius, order in zip(radii, orders, strict=True)]
    parts = [
        np.stack(
            [
                _weighted_quantiles(values, weights[:, group[order]], weights[:, -1], quantile)
                for values, order in zip(ordered, orders, strict=True)
            ]
        )
        for weights in _weights(int(group.max()) + 1, len(group), options)
    ]
    return np.concatenate(parts, axis=1)


def _weights(groups: int, count: int, options: EvidenceOptions) -> Iterator[np.ndarray]:
    """Weights of the groups and of one more, (resamples, groups + 1), a block at a time."""
    generator = np.random.default_rng(options.seed)
    size = max(1, _BLOCK_ENTRIES // count)
    for start in range(0, options.resamples, size):
        rows = min(size, options.resamples - start)
        yield generator.standard_exponential((rows, groups + 1))


def _weighted_quantiles(
    ordered: Float64[np.ndarray, "n"],
    weights: Float64[np.ndarray, "rows n"],
    above: Float64[np.ndarray, "rows"],
    quantile: float,
) -> Float64[np.ndarray, "rows"]:
    """The value at which each row's weights reach the quantile, between two by interpolation."""
    reached = np.cumsum(weights, axis=1)  # (rows, n)
    wanted = quantile * (reached[:, -1] + above)
    index = np.minimum((reached < wanted[:, None]).sum(axis=1), len(ordered) - 1)
    rows = np.arange(len(index))
    high, step = ordered[index], weights[rows, index]
    low = ordered[np.maximum(index - 1, 0)]
    part = np.clip(1 - (reached[rows, index] - wanted) / step, 0, 1)
    found: np.ndarray = low + part * (high - low)
    return found
