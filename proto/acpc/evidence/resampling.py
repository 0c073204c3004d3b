"""Resamples the anchors of a checkpoint and its reference together: trajectories, or windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from acpc.contract import EvidenceOptions

_BLOCK_ENTRIES = 2**20  # weights held at once, 8 MiB
FEW_OF_ALL = 100  # of so many times more windows those drawn are as good as drawn with replacement


class Weights(NamedTuple):
    """Weights of a block of resamples.

    The unseen group has the size of that of the member at ``rank``, a share in [0, 1), of all
    members in order of their groups' sizes.
    """

    rows: slice  # which resamples they are
    own: Float64[np.ndarray, "rows groups"]
    unseen: Float64[np.ndarray, "rows"]  # of one group more, that no sample holds
    rank: Float64[np.ndarray, "rows"]


def draw_weights(
    group: Int64[np.ndarray, "n"],
    options: EvidenceOptions,
    shape: float = 1.0,
    windows: int | None = None,
) -> Iterator[Weights]:
    """Weights of the groups, a block of resamples at a time.

    Gamma distributed, exponential where ``shape`` is 1: the Bayesian bootstrap (Rubin 1981). Of a
    sample of ``windows`` in all, how often each stands for one of them under the Polya posterior
    (Ghosh and Meeden 1997): once, and as often as an urn of them and of one unseen gives it.
    """
    groups = int(group.max()) + 1
    generator = np.random.default_rng(options.seed)
    size = max(1, _BLOCK_ENTRIES // len(group))
    for start in range(0, options.resamples, size):
        rows = min(size, options.resamples - start)
        weights = generator.standard_gamma(shape, (rows, groups + 1))
        rank = generator.random(rows)
        if windows is not None and windows <= FEW_OF_ALL * groups:
            share = weights / weights.sum(axis=1, keepdims=True)
            weights = generator.multinomial(max(0, windows - groups), share).astype(np.float64)
            weights[:, :-1] += 1
        yield Weights(slice(start, start + rows), weights[:, :-1], weights[:, -1], rank)


def sizes_by_rank(
    sizes: Int64[np.ndarray, "groups"], rank: Float64[np.ndarray, "rows"]
) -> Float64[np.ndarray, "rows"]:
    """The sizes of the groups of random members: a group that is larger comes more often."""
    held = np.sort(sizes)
    held = np.repeat(held, held).astype(np.float64)
    found: np.ndarray = held[(rank * len(held)).astype(np.int64)]
    return found


def resampled_quantiles(
    radii: list[Float64[np.ndarray, "n"]],
    group: Int64[np.ndarray, "n"],
    quantile: float,
    options: EvidenceOptions,
    shape: float,
    windows: int | None = None,
) -> Float64[np.ndarray, "samples resamples"]:
    """Quantiles of several samples on the same anchors, under the same resamples.

    The unseen group lies above every anchor, so that without clusters the quantile is distributed
    as its order statistics are. Where the quantile lies above them all it is infinite.
    """
    orders = [np.argsort(radius, kind="stable") for radius in radii]
    sizes = np.bincount(group)
    found = np.empty((len(radii), options.resamples))
    for rows, weights, unseen, rank in draw_weights(group, options, shape, windows):
        above = unseen * sizes_by_rank(sizes, rank)
        for values, radius, order in zip(found, radii, orders, strict=True):
            own = weights[:, group[order]]  # (rows, n)
            values[rows] = _weighted_quantiles(radius[order], own, above, quantile)
    return found


def effective_groups(group: Int64[np.ndarray, "*shape"]) -> float:
    """Number of groups of one size that are worth as much as these (Kish 1965)."""
    sizes = np.bincount(group.ravel()).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


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
