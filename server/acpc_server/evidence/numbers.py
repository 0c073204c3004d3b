"""The numbers of a score, raw IR, relative IR and SR, each with bounds at any level."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from acpc.contract import EvidenceOptions, ScoreProtocol
from acpc.evidence import (
    BOOTSTRAP,
    AnchorSample,
    FewGroups,
    OrderStatistics,
    Proportion,
    Resampled,
    design_effect,
    effective_groups,
    groups,
    resampled_quantiles,
)
from jaxtyping import Float64, Int64

from acpc_server.numerics import Check, go_on, verdict

FEW_PAIRS = 30
"""Fewer pairs than these have exact bounds, and a warning."""
_ONE_ERROR = 0.3173
"""Probability beyond one standard error on either side."""


@dataclass(frozen=True)
class Numbers:
    """Numbers of a checkpoint and its reference; None without one."""

    ir_raw: OrderStatistics
    sr: Proportion
    ir_relative: Resampled | None = None
    reference_ir_raw: OrderStatistics | None = None
    reference_sr: Proportion | None = None

    @classmethod
    def of(
        cls,
        checkpoint: AnchorSample,
        reference: AnchorSample | None,
        protocol: ScoreProtocol,
        options: EvidenceOptions,
        check: Check = go_on,
    ) -> Numbers:
        """Compute the numbers of these samples, their raw IR resampled together.

        FailedPrecondition where the reference's raw IR is 0.
        """
        group = groups(checkpoint)
        confidence = options.confidence
        ir_raw = _radius(checkpoint, group, protocol.quantile, confidence)
        sr = _separation(checkpoint, group, protocol.margin, ir_raw, confidence)
        if reference is None:
            return cls(ir_raw, sr)
        against, against_sr = ir_raw, sr
        if reference is not checkpoint:
            against = _radius(reference, group, protocol.quantile, confidence)
            against_sr = _separation(reference, group, protocol.margin, against, confidence)
        radii = [checkpoint.radius, reference.radius]
        few = FewGroups(effective_groups(group), confidence=confidence)
        point = verdict.relative_ir(ir_raw.point, against.point)
        ratio = Resampled(point, np.empty(0), BOOTSTRAP, few)
        above_all = protocol.quantile * (len(group) + 1) > len(group)
        if not above_all and 1 - confidence >= few.least:
            values = resampled_quantiles(radii, group, protocol.quantile, options, few, check)
            ratio = replace(ratio, ordered=_ratios(values))
        return cls(ir_raw, sr, ratio, against, against_sr)


def _radius(
    sample: AnchorSample, group: Int64[np.ndarray, "n"], quantile: float, confidence: float
) -> OrderStatistics:
    """Bound raw IR with the independent anchors that the share below it, or half, is worth."""
    radius = sample.radius
    point, count, ends = float(np.quantile(radius, quantile)), len(radius), np.stack([group, group])
    below = (radius <= point, radius <= np.median(radius))
    design = max(1.0, *(design_effect(hits, ends) for hits in below))
    few = FewGroups(effective_groups(group), count, confidence)
    return OrderStatistics(point, np.sort(radius), quantile, count / (design * few.factor))


def _ratios(values: Float64[np.ndarray, "2 resamples"]) -> Float64[np.ndarray, "resamples"]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.sort(np.nan_to_num(values[0] / values[1], nan=np.inf, posinf=np.inf))


def _separation(
    sample: AnchorSample,
    group: Int64[np.ndarray, "n"],
    margin: float,
    ir_raw: OrderStatistics,
    confidence: float,
) -> Proportion:
    """Return SR beyond raw IR, with the number of independent pairs that its variance is worth.

    Its variance has two parts. One is that of the pairs, which depend on each other: where few are
    not separated it is known badly, so its design effect is the mean of that and of the one of the
    distances' median split, which alone counts where all agree. The other is what SR moves while
    raw IR, its threshold, goes one standard error to either side.
    """
    pairs = np.flatnonzero(sample.eligible)
    distance, count = sample.distance[pairs], len(pairs)
    ends = np.stack([group[pairs], group[sample.partner[pairs]]])
    separated = distance > ir_raw.point + margin
    share = float(separated.mean())
    design = design_effect(distance > np.median(distance), ends)
    if 0 < share < 1:
        design = (design + design_effect(separated, ends)) / 2
    # One standard error: the allowance for few trajectories comes once, below.
    known = FewGroups(effective_groups(group), len(group), confidence).factor * ir_raw.trials
    threshold = replace(ir_raw, trials=known)
    ends_of_ir = np.clip(
        [threshold.lower(_ONE_ERROR), threshold.upper(_ONE_ERROR)], *ir_raw.ordered[[0, -1]]
    )
    low, high = (float((distance > end + margin).mean()) for end in ends_of_ir)
    smooth = (separated.sum() + 0.5) / (count + 1)
    design = max(1.0, design) + ((low - high) / 2) ** 2 * count / (smooth * (1 - smooth))
    few = FewGroups(effective_groups(ends), count, confidence)
    return Proportion(share, count / (design * few.factor), count < FEW_PAIRS, few)
