"""The separation rate as a proportion of pairs that share partners and trajectories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from acpc.evidence import (
    AnchorSample,
    FewGroups,
    OrderStatistics,
    Proportion,
    design_effect,
    effective_groups,
)
from jaxtyping import Int64

FEW_PAIRS = 30
"""Fewer pairs than these have exact bounds, and a warning."""
_ONE_ERROR = 0.3173
"""Probability beyond one standard error on either side."""


def separation(
    sample: AnchorSample,
    group: Int64[np.ndarray, "n"],
    margin: float,
    ir_raw: OrderStatistics,
    confidence: float,
) -> Proportion:
    """SR beyond raw IR, with the number of independent pairs that its variance is worth.

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
