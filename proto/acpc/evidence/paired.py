"""What two checkpoints differ by on the same anchors, with intervals of the differences."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64
from scipy import special

from acpc.contract import EvidenceOptions, Interval, ScoreProtocol
from acpc.evidence.estimates import MIN_GROUPS, Resampled, allowance
from acpc.evidence.pairs import design_effect, dyadic_variance
from acpc.evidence.resampling import effective_groups, resampled_quantiles
from acpc.evidence.sample import CheckpointSample, groups

BOOTSTRAP = "Bayesian bootstrap over trajectories"
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
    in common cancels.

    Args:
        first: What the first checkpoint gave; its partners and trajectories are the second's too.
        second: What the second gave.
        reference: Radii of the reference of both; None without one.
        protocol: The quantile of IR and the margin of SR.
        options: Confidence, resamples and seed.
    """
    group, quantile = groups(first), protocol.quantile
    worth = effective_groups(group)
    wider = allowance(worth, options.confidence)
    radii = [first.radius, second.radius, *([] if reference is None else [reference])]
    points = [float(np.quantile(radius, quantile)) for radius in radii]
    values = np.empty((len(radii), 0))
    if quantile * (len(group) + 1) <= len(group):
        values = resampled_quantiles(radii, group, quantile, options, (1 - 1 / worth) / wider)
    shown = values if worth >= MIN_GROUPS else values[:, :0]

    def resampled(point: float, of: np.ndarray, least: float = -math.inf) -> Change:
        ordered = np.sort(np.nan_to_num(of, nan=math.inf, posinf=math.inf, neginf=-math.inf))
        estimate = Resampled(point, ordered, ordered, BOOTSTRAP, least)
        return point, estimate.interval(options.confidence)

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        change, moved = points[1] - points[0], shown[1] - shown[0]
        ratio = points[1] / points[0] if points[0] else math.nan
        relative = None
        if reference is not None:
            relative = resampled(change / points[2], moved / shown[2])
        return {
            "ir_raw": resampled(change, moved),
            "ir_ratio": resampled(ratio, shown[1] / shown[0], 0.0),
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
    """The difference of two shares of the same pairs (Bonett and Price 2012).

    Pairs depend on each other as in a single SR, so they count as many as their variance is worth;
    to it comes what both SR move while both raw IR, their thresholds, are resampled together.
    """
    pairs = np.flatnonzero(first.eligible)
    if not len(pairs):
        return None
    ends = np.stack([group[pairs], group[first.partner[pairs]]])
    distance = [sample.distance[pairs] for sample in (first, second)]
    limits = [float(np.quantile(s.radius, protocol.quantile)) for s in (first, second)]
    before, after = (d > limit + protocol.margin for d, limit in zip(distance, limits, strict=True))
    change = after.astype(np.float64) - before
    point, count = float(after.mean() - before.mean()), len(pairs)
    if not values.shape[1]:
        return point, Interval(-1.0, 1.0, PAIRED_SHARES)
    apart = distance[1] - distance[0]
    design = design_effect(apart > np.median(apart), ends)
    spread = change - change.mean()
    if (squares := float((spread**2).sum())) > 0:
        design = (design + dyadic_variance(spread, ends) / squares) / 2
    below = [
        np.searchsorted(np.sort(d), limit + protocol.margin, "right") / count
        for d, limit in zip(distance, values[:2], strict=True)
    ]
    moved = below[0] - below[1]
    threshold = float(np.var(moved))
    threshold /= allowance(effective_groups(group), confidence)
    trials = count / max(1.0, design)
    up, down = ((float((change == to).mean()) * trials + 1) / (trials + 2) for to in (1, -1))
    variance = (up + down - (up - down) ** 2) / (trials + 2) + threshold
    variance *= allowance(effective_groups(ends), confidence)
    reach = float(special.ndtri((1 + confidence) / 2) * math.sqrt(variance))
    # Where raw IR jumps, its thresholds alone reach further than their variance says.
    low, high = np.quantile(moved, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    lower = min(point, low, max(-1.0, up - down - reach))
    upper = max(point, high, min(1.0, up - down + reach))
    return point, Interval(lower, upper, PAIRED_SHARES)
