"""Slow, independent versions of what docs/statistics.md says, as plain loops in float64."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats


def weights(group: list[int], resamples: int, seed: int) -> list[list[float]]:
    """A weight per trajectory, and one more, of each resample."""
    sizes = [group.count(g) for g in sorted(set(group))]
    worth = sum(sizes) ** 2 / sum(size**2 for size in sizes)
    wider = (stats.t.ppf(0.975, worth - 1) / stats.norm.ppf(0.975)) ** 2
    shape = (worth - 1) / worth / wider
    drawn = np.random.default_rng(seed).standard_gamma(shape, (resamples, len(sizes) + 1))
    return [[float(weight) for weight in row] for row in drawn]


def weighted_quantile(values: list[float], group: list[int], row: list[float], q: float) -> float:
    """Where the weights, from the smallest anchor on, reach q of all; the last lies above all."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    total = sum(row[group[i]] for i in order) + row[-1]
    reached, before = 0.0, values[order[0]]
    for i in order:
        step = row[group[i]]
        if reached + step >= q * total:
            part = min(1.0, max(0.0, (q * total - reached) / step))
            return before + part * (values[i] - before)
        reached, before = reached + step, values[i]
    return before


def ratio_bounds(
    own: list[float], other: list[float], group: list[int], q: float, resamples: int, seed: int,
    alpha: float,
) -> tuple[float, float]:  # fmt: skip
    """The interval of the ratio of two quantiles on the same anchors."""
    ratios = sorted(
        weighted_quantile(own, group, row, q) / weighted_quantile(other, group, row, q)
        for row in weights(group, resamples, seed)
    )
    rank = math.floor(alpha / 2 * (resamples + 1))
    return ratios[rank - 1], ratios[-rank]


def pair_variance(hits: list[float], ends: list[tuple[int, int]]) -> float:
    """Variance of the number of hits, of pairs of trajectories: all products that share one."""
    mean = sum(hits) / len(hits)
    total = 0.0
    for i, (a, b) in enumerate(ends):
        for j, (c, d) in enumerate(ends):
            if {a, b} & {c, d}:
                total += (hits[i] - mean) * (hits[j] - mean)
    return total
