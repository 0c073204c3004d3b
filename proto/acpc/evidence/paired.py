"""What two checkpoints differ by on the same anchors, with intervals of the differences."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64
from scipy import special

from acpc.contract import EvidenceOptions, Interval, Population, ScoreProtocol
from acpc.evidence.estimates import Resampled, allowance
from acpc.evidence.resampling import effective_groups, resampled_quantiles
from acpc.evidence.sample import CheckpointSample, design_effect, dyadic_variance, groups

BOOTSTRAP = "Bayesian bootstrap over trajectories"
_JUMP = 1.75
PAIRED_SHARES = "adjusted Wald bounds of paired shares, effective sample size"


Change = tuple[float, Interval]


def paired_differences(
    first: CheckpointSample,
    second: CheckpointSample,
    reference: Float64[np.ndarray, "n"] | None,
    protocol: ScoreProtocol,
    options: EvidenceOptions,
) -> dict[str, Change | None]:
    """The second sample minus the first, of the same anchors, each number with its interval.

    ``ir_raw``; ``ir_ratio``, second over first; ``ir_relative``, in units of the reference's raw
    IR, None without one; ``sr``, None where no anchor has a partner. Raw IR of both, and of the
    reference, is resampled over trajectories under the same weights, so that what the anchors have
    in common cancels. Partners and trajectories of the first sample are the second's too.
    ``reference`` are the radii of the reference of both, None without one.
    """
    group, quantile = groups(first, options.population), protocol.quantile
    windows = first.windows if options.population is Population.DATASET else None
    worth = effective_groups(group)
    shape = (1 - 1 / worth) / allowance(worth, options.confidence)
    radii = [first.radius, second.radius, *([] if reference is None else [reference])]
    points = [float(np.quantile(radius, quantile)) for radius in radii]
    values = resampled_quantiles(radii, group, quantile, options, shape, windows)

    def resampled(point: float, of: np.ndarray, least: float = -math.inf) -> Change:
        """Where both quantiles lie above all anchors, each may be far above the other."""
        low, high = (np.sort(np.where(np.isnan(of), end, of)) for end in (least, math.inf))
        found = Resampled(point, low, high, BOOTSTRAP, least)
        ends = [(found.lower(a), found.upper(a)) for a in _errors(options.confidence)]
        if least == 0:  # a ratio, which is compared as its logarithm
            at, usual, rare = (
                (float(low), float(high)) for low, high in np.log([(point, point), *ends])
            )
            lower, upper = np.exp(_farther(at, usual, rare)).tolist()
        else:
            lower, upper = _farther((point, point), ends[0], ends[1])
        return point, Interval(lower, upper, BOOTSTRAP)

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        change, moved = points[1] - points[0], values[1] - values[0]
        ratio = points[1] / points[0] if points[0] else math.nan
        relative = None
        if reference is not None:
            relative = resampled(change / points[2], moved / values[2])
        return {
            "ir_raw": resampled(change, moved),
            "ir_ratio": resampled(ratio, values[1] / values[0], 0.0),
            "ir_relative": relative,
            "sr": _sr(first, second, group, values, protocol, options.confidence),
        }


def _sr(
    first: CheckpointSample,
    second: CheckpointSample,
    group: Int64[np.ndarray, "n"],
    values: Float64[np.ndarray, "samples resamples"],
    protocol: ScoreProtocol,
    confidence: float,
) -> Change | None:
    """The difference of two shares of the same pairs (Bonett and Price 2012), resampled.

    Pairs depend on each other as in a single SR, so they count as many as their variance is worth.
    The thresholds, both raw IR, are resampled together, and at each the shares have their error.
    """
    pairs = np.flatnonzero(first.eligible)
    if not len(pairs):
        return None
    ends = np.stack([group[pairs], group[first.partner[pairs]]])
    distance = [sample.distance[pairs] for sample in (first, second)]
    limits = [float(np.quantile(s.radius, protocol.quantile)) for s in (first, second)]
    before, after = (d > limit + protocol.margin for d, limit in zip(distance, limits, strict=True))
    change = after.astype(np.float64) - before
    point, count = float(change.mean()), len(pairs)
    apart = distance[1] - distance[0]
    design = design_effect(apart > np.median(apart), ends)
    spread = change - change.mean()
    if (squares := float((spread**2).sum())) > 0:
        design = (design + dyadic_variance(spread, ends) / squares) / 2
    trials = count / max(1.0, design)
    seen = np.isfinite(values[:2]).all(axis=0)
    moved = np.empty((2, int(seen.sum())))
    blocks = np.array_split(np.arange(moved.shape[1]), 1 + moved.shape[1] * count // 2**20)
    for rows in blocks:
        of = values[:2, seen][:, rows, None] + protocol.margin
        before, after = (d > limit for d, limit in zip(distance, of, strict=True))
        moved[:, rows] = (after & ~before).mean(axis=1), (before & ~after).mean(axis=1)
    up, down = (moved * trials + 1) / (trials + 2)
    error = (up + down - (up - down) ** 2) / (trials + 2)
    error = np.sqrt(error * allowance(effective_groups(ends), confidence))
    unseen = int((~seen).sum())

    def lower(middle: np.ndarray, tail: float) -> float:
        """Where that share of the resamples, of which each is normally distributed, lies below."""
        if unseen > tail * len(seen):
            return -math.inf
        low, high = -1.0, 1.0
        for _ in range(40):
            at = (low + high) / 2
            below = unseen + special.ndtr((at - middle) / error).sum() > tail * len(seen)
            low, high = (low, at) if below else (at, high)
        return low

    bounds = [
        (min(point, lower(up - down, a / 2)), max(point, -lower(down - up, a / 2)))
        for a in _errors(confidence)
    ]
    low, high = _farther((point, point), bounds[0], bounds[1], jump=1.0)
    return point, Interval(max(-1.0, low), min(1.0, high), PAIRED_SHARES)


def _errors(confidence: float) -> tuple[float, float]:
    """The error, and the one at which two events of independent chances have it together.

    Their chances multiply, and a product of two is at most c with chance c (1 - log c) (Fisher
    1925).
    """
    tail = (1 - confidence) / 2
    both = math.exp(1 + special.lambertw(-tail / math.e, -1).real)
    return 1 - confidence, 2 * both


def _farther(
    point: tuple[float, float],
    usual: tuple[float, float],
    rare: tuple[float, float],
    jump: float = _JUMP,
) -> tuple[float, float]:
    """The usual ends; a rare one where it lies farther than those of one distribution would.

    A normal one's lie a third farther. Where either checkpoint's number jumps in some share of the
    trajectories, both samples can err at once, and the usual end does not see it.
    """
    found = []
    for at, near, far in zip(point, usual, rare, strict=True):
        jumps = math.isfinite(far) and abs(far - at) > jump * abs(near - at)
        found.append(far if jumps else near)
    return found[0], found[1]
